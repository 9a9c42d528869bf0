"""Kill switch: forces direct calls, whatever mode an agent has."""

import inspect
import logging
import os
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from mcp_exec_client.agent.errors import AgentError

log = logging.getLogger(__name__)

VARIABLE: Final = "MCP_EXEC_FORCE_DIRECT"
"""Environment variable of the switch."""
_ON: Final = ("1", "true", "yes", "on")
_OFF: Final = ("", "0", "false", "no", "off")

KillSwitch: TypeAlias = bool | Callable[[], bool | Awaitable[bool]]
"""A value, or a function that is called before each task, for example one that reads a flag."""


async def find_kill_reason(switch: KillSwitch) -> str | None:
    """Return why direct calls are forced, or None. A function that fails forces them.

    Raises AgentError if the environment variable has another value than on or off.
    """
    value = os.environ.get(VARIABLE, "").strip().lower()
    if value not in _ON + _OFF:
        raise AgentError(f"${VARIABLE} is {value[:40]!r}; it must be one of {', '.join(_ON + _OFF[1:])}")
    if value in _ON:
        return f"kill switch: ${VARIABLE}"
    if isinstance(switch, bool):
        return "kill switch: the application's option" if switch else None
    try:
        found = switch()
        is_on = await found if inspect.isawaitable(found) else found
    except Exception:
        log.exception("the kill switch failed")
        return "kill switch: the application's function failed"
    return "kill switch: the application's function" if is_on else None
