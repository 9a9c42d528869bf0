"""Check that a NetworkPolicy isolates this sandbox, because only some network plugins enforce policies.

The operator names an address that answers other pods and must not answer this one. No code runs while it answers.
"""

import asyncio
import contextlib

ANSWER_SECONDS = 0.3
"""Time for an address of the cluster to answer. An address that a policy blocks never answers."""
PAUSE_SECONDS = 0.2


async def wait_until_isolated(host: str, port: int, *, seconds: float) -> bool:
    """Return True once the address does not answer, or False if it still answers after `seconds`.

    A policy can take effect a little after the pod's start, so the check repeats while the address answers.
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
