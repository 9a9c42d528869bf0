"""Waits in code for a message in a channel: however often it looks, the model reads one line."""

import asyncio

from servers.slack import get_channel_history, post_message

await post_message({"channel": "C123", "text": f"deploy {release}"})
looks, found = 0, False
while not found:
    messages = await get_channel_history({"channel": "C123", "limit": 5})
    looks += 1
    found = any(message["text"] == f"deployment complete: {release}" for message in messages)
    if not found:
        await asyncio.sleep(0.5)

print("Deployment complete!")
{"looks": looks}
