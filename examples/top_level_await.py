"""Code may await without a function of its own, as in a notebook."""

import asyncio


async def square(number):
    await asyncio.sleep(0)
    return number * number


print(await asyncio.gather(*(square(number) for number in range(5))))
await square(12)
