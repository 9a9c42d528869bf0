"""Whether the network holds this sandbox: a NetworkPolicy is a wish, and only some network plugins grant it.

The operator names an address that answers others and must not answer here. While it does, no code may run.
"""

import asyncio
import contextlib

ANSWER_SECONDS = 0.3
"""How long an address of the cluster may take to answer; one that a policy cuts off never does."""
PAUSE_SECONDS = 0.2


async def until_isolated(host: str, port: int, *, seconds: float) -> bool:
    """Return True once the address does not answer, False where it still does after `seconds`.

    A policy may come into force a little after the pod's start, so an answer is waited out.
    """
    deadline = asyncio.get_running_loop().time() + seconds
    while await _answers(host, port):
        if asyncio.get_running_loop().time() >= deadline:
            return False
        await asyncio.sleep(PAUSE_SECONDS)
    return True


async def _answers(host: str, port: int) -> bool:
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True
