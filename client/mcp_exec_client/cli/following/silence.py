"""Executions that no operator observes, for example in a namespace that is not served."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from mcp_exec_client.cli.backends.backend import Backend
from mcp_exec_client.cli.exit_codes import ExitCode
from mcp_exec_client.cli.options import CommandError

_NOTE_SECONDS: Final = 2.0
"""Time after which a person is informed. An operator needs well under a second."""
_CHECK_SECONDS: Final = 5.0
"""Time after which the namespace is checked."""
_MAX_SECONDS: Final = 60.0
"""Longest time without an operator, for example while another one becomes the leader."""


class Unobserved(CommandError):
    """No operator observes the execution, so it would neither run nor end."""


async def watch_silence(
    backend: Backend, name: str, observed: asyncio.Event, note: Callable[[str], None], *, waits: bool = True
) -> None:
    """Return when an execution is observed. Raises Unobserved if none will observe it, or none does in time.

    Without `waits`, it also returns if the namespace is served.
    """
    if await _comes_within(observed, _NOTE_SECONDS):
        return
    note(f"{name} waits: no operator has observed it yet")
    if await _comes_within(observed, _CHECK_SECONDS - _NOTE_SECONDS):
        return
    problem = await explain_silence(backend)
    if observed.is_set():
        return
    if problem is not None:
        raise Unobserved(problem, ExitCode.REFUSED)
    if waits and not await _comes_within(observed, _MAX_SECONDS - _CHECK_SECONDS):
        message = f"no operator has observed {name} within {_MAX_SECONDS:g} s: check that the operator runs"
        raise Unobserved(message, ExitCode.UNAVAILABLE)


async def explain_silence(backend: Backend) -> str | None:
    """Return why no operator observes executions of the namespace, or None if that is not known within seconds."""
    with suppress(CommandError, TimeoutError):
        async with asyncio.timeout(_CHECK_SECONDS):
            return await backend.find_unserved()
    return None


async def describe_nothing(backend: Backend, what: str) -> str:
    """Return that a list of a namespace has no items, and why that may be so."""
    place = f" in namespace {backend.namespace}" if backend.namespace else ""
    problem = await explain_silence(backend)
    return f"no {what}{place}" + (f": {problem}" if problem else "")


async def _comes_within(event: asyncio.Event, seconds: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
