"""The mode that a rollout assigns to a unit, such as a user."""

import logging
from dataclasses import dataclass
from typing import Final, get_args

from mcp_exec_client.agent.events import Mode
from mcp_exec_client.agent.rules import ModeChoice
from mcp_exec_client.client import AsyncClient
from mcp_exec_client.errors import McpExecError

log = logging.getLogger(__name__)

_MODES: Final = get_args(Mode)


@dataclass(frozen=True, kw_only=True)
class RolloutUnit:
    """One unit of a rollout. The gateway assigns the arm; an assignment is sticky, so it is asked for each task."""

    client: AsyncClient
    rollout: str
    unit: str

    async def choose(self, default: ModeChoice) -> ModeChoice:
        """Return the mode of the unit's arm, or the default if the gateway does not assign one."""
        try:
            assignment = await self.client.conversations.assign(self.rollout, self.unit)
        except McpExecError as error:
            log.warning("rollout %s assigned no arm: %s", self.rollout, error)
            reason = f"rollout {self.rollout} assigned no arm ({error}); default"
            return ModeChoice(mode=default.mode, rule="rollout", reason=reason)
        if assignment.mode not in _MODES:
            reason = f"arm {assignment.arm} of rollout {self.rollout} has no mode; default"
            return ModeChoice(mode=default.mode, rule="rollout", reason=reason)
        mode: Mode = next(mode for mode in _MODES if mode == assignment.mode)
        return ModeChoice(mode=mode, rule="rollout", reason=f"arm {assignment.arm} of rollout {self.rollout}")
