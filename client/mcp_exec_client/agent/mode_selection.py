"""The mode of a task, with its tools and its system prompt."""

import json
from dataclasses import dataclass
from typing import Final

from mcp_exec_client.agent.events import Mode
from mcp_exec_client.agent.kill_switch import KillSwitch, find_kill_reason
from mcp_exec_client.agent.providers.model import Block
from mcp_exec_client.agent.rollout import RolloutUnit
from mcp_exec_client.agent.rules import HybridRules, ModeChoice, TaskProfile
from mcp_exec_client.agent.toolsets.code_mode import CodeMode
from mcp_exec_client.agent.toolsets.direct_mode import SYSTEM_PROMPT, DirectMode
from mcp_exec_client.agent.toolsets.task_tools import TaskTools
from mcp_exec_tools.text import estimate_tokens

_FENCED: Final = (
    "\nYou have no tools: write the code into one block that begins with ```python and ends with ```, and you get its "
    "result. `from tool_discovery import search_tools` searches in code. Write no block in your final answer.\n"
)
HYBRID_PROMPT: Final = (
    "\nTools whose name contains `__` can also be called directly: do so for a single call with a short result, and "
    "use code for everything else.\n"
)


@dataclass(frozen=True, kw_only=True)
class TaskSetup:
    """How one task is done."""

    choice: ModeChoice
    system: str
    tools: TaskTools
    definition_tokens: int
    """Estimated tokens of the definitions in each request."""


@dataclass(kw_only=True)
class ModeSelection:
    """Chooses the mode of each task of a conversation."""

    mode: Mode
    rules: HybridRules
    kill_switch: KillSwitch
    rollout: RolloutUnit | None
    code: CodeMode
    direct: DirectMode
    instructions: str
    max_failures: int
    shows_tools: bool
    """Whether the model can use tools; one that cannot writes code in a fenced block."""

    async def prepare(self, task: str, expected: TaskProfile | None, *, assigns: bool = True) -> TaskSetup:
        """Return the setup of a task. Raises AgentError and McpExecError.

        Without `assigns`, the rollout is not asked: an assignment counts as an exposure.
        """
        choice = await self._choose_mode(self.rollout if assigns else None)
        if choice.mode == "code":
            return await self._set_up_code(choice)
        if choice.mode == "direct":
            return await self._set_up_direct(choice)
        return await self._set_up_hybrid(task, expected)

    async def _choose_mode(self, rollout: RolloutUnit | None) -> ModeChoice:
        """Return the mode before the rules: by the kill switch, else the rollout, else the application."""
        reason = await find_kill_reason(self.kill_switch)
        if reason:
            return ModeChoice(mode="direct", rule="kill_switch", reason=reason)
        if not self.shows_tools:
            return ModeChoice(mode="code", rule="no_tools", reason="the model cannot use tools")
        own = ModeChoice(mode=self.mode, rule="option", reason="the application's choice")
        return own if rollout is None else await rollout.choose(own)

    async def _set_up_code(self, choice: ModeChoice) -> TaskSetup:
        definitions = self.code.tools()
        tools = TaskTools(code=self.code, direct=None, definitions=definitions, max_failures=self.max_failures)
        fenced = "" if self.shows_tools else _FENCED
        return self._set_up(choice, await self.code.system_prompt() + fenced, tools)

    async def _set_up_direct(self, choice: ModeChoice) -> TaskSetup:
        tools = TaskTools(code=None, direct=self.direct, definitions=await self.direct.tools())
        return self._set_up(choice, SYSTEM_PROMPT, tools)

    async def _set_up_hybrid(self, task: str, expected: TaskProfile | None) -> TaskSetup:
        servers = {tool.server for tool in await self.code.find_tools("", "name_only")}
        matches = await self.code.find_tools(task[:200], "name_only")
        names = {f"{tool.server}.{tool.name}" for tool in matches[: self.rules.direct_tools]}
        offered = await self.direct.tools(names)
        profile = TaskProfile.estimate(task, servers)
        sized = TaskProfile(definition_tokens=estimate_definitions(offered))
        choice = self.rules.choose(profile.override(sized).override(expected))
        if choice.mode == "code":
            return await self._set_up_code(choice)
        tools = TaskTools(
            code=self.code,
            direct=self.direct,
            definitions=[*self.code.tools(), *offered],
            rules=self.rules,
            max_failures=self.max_failures,
        )
        return self._set_up(choice, await self.code.system_prompt() + HYBRID_PROMPT, tools)

    def _set_up(self, choice: ModeChoice, system: str, tools: TaskTools) -> TaskSetup:
        text = f"{system}\n{self.instructions}" if self.instructions else system
        size = estimate_definitions(tools.definitions)
        return TaskSetup(choice=choice, system=text, tools=tools, definition_tokens=size)


def estimate_definitions(definitions: list[Block]) -> int:
    """Return the estimated tokens of tool definitions."""
    return estimate_tokens(json.dumps(definitions, ensure_ascii=False)) if definitions else 0
