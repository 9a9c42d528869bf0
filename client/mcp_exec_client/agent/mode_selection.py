"""The mode of a task, with its tools and its system prompt, and the switch that forces direct calls."""

import inspect
import json
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from mcp_exec_client.agent.modes import HybridRules, ModeChoice, RolloutUnit, TaskProfile
from mcp_exec_client.agent.outcomes import AgentError, AgentStep, Mode, OnEvent
from mcp_exec_client.agent.providers.model import Block
from mcp_exec_client.agent.toolsets.code_mode import CODE_TOOL_NAMES, CodeMode
from mcp_exec_client.agent.toolsets.direct_mode import SYSTEM_PROMPT, DirectMode, count_rows
from mcp_exec_client.agent.toolsets.results import ToolOutcome
from mcp_exec_tools.text import estimate_tokens

log = logging.getLogger(__name__)
VARIABLE: Final = "MCP_EXEC_FORCE_DIRECT"
"""Environment variable of the switch."""
_ON: Final = ("1", "true", "yes", "on")
_OFF: Final = ("", "0", "false", "no", "off")
KillSwitch: TypeAlias = bool | Callable[[], bool | Awaitable[bool]]
"""A value, or a function that is called before each task, for example one that reads a flag."""
_SHOWN_CHARACTERS = 2000
"""Most characters of a result that is too large for a direct call."""
_FENCED: Final = (
    "\nYou have no tools: write the code into one block that begins with ```python and ends with ```, and you get its "
    "result. `from tool_discovery import search_tools` searches in code. Write no block in your final answer.\n"
)
HYBRID_PROMPT: Final = (
    "\nTools whose name contains `__` can also be called directly: do so for a single call with a short result, and "
    "use code for everything else.\n"
)


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


@dataclass(kw_only=True)
class TaskTools:
    """Tools of one task."""

    code: CodeMode | None
    """None if the task runs only by direct calls."""
    direct: DirectMode | None
    """None if the task runs only by code."""
    definitions: list[Block]
    rules: HybridRules | None = None
    """Bounds of direct calls in a hybrid task."""
    max_failures: int = 3
    calls: int = 0
    """Direct calls so far."""
    failures: int = field(default=0, init=False)
    """Failed blocks of code in a row."""

    async def work(self, use: Block, *, on_event: OnEvent) -> Block:
        """Use a tool and return its `tool_result`. Raises AgentError and McpExecError."""
        name, given = str(use.get("name")), use.get("input")
        if self.direct is not None and (self.code is None or name not in CODE_TOOL_NAMES):
            outcome = await self._call(self.direct, name, given, on_event)
        elif self.code is None:
            outcome = await self._refuse(f"there is no tool {name[:100]!r}", on_event)
        else:
            outcome = await self.run(self.code, name, given, on_event=on_event)
        return outcome.to_block(str(use.get("id")))

    async def run(self, code: CodeMode, name: str, given: object, *, on_event: OnEvent) -> ToolOutcome:
        """Use a tool of code mode. After too many failures in a row, no further code is run."""
        runs_code = name == "execute_code"
        if runs_code and self.failures >= self.max_failures:
            return await self._refuse("no attempt is left: answer with what you have, and say what failed", on_event)
        outcome = await code.work(name, given, on_event=on_event)
        if not runs_code:
            return outcome
        self.failures = self.failures + 1 if outcome.failed else 0
        if self.failures < self.max_failures:
            return outcome
        text = f"{outcome.text}\nThis was attempt {self.failures} of {self.max_failures}: answer with what you have."
        return ToolOutcome(text=text, failed=True, refused=outcome.refused)

    async def _call(self, direct: DirectMode, name: str, given: object, on_event: OnEvent) -> ToolOutcome:
        if name not in {tool["name"] for tool in self.definitions}:
            return await self._refuse(f"there is no tool {name[:100]!r}", on_event)
        rules = self.rules
        if rules is not None and self.calls >= rules.max_calls:
            reason = f"more than {rules.max_calls} calls are needed"
            await on_event(AgentStep(kind="mode", text=f"code (max_calls): {reason}"))
            return await self._refuse(f"{reason}: do the rest by one block of code with execute_code", on_event)
        self.calls += 1
        outcome = await direct.work(name, given, on_event=on_event)
        if rules is None or outcome.failed:
            return outcome
        if (rows := count_rows(outcome.text)) > rules.max_rows:
            rule, reason = "max_rows", f"the result has {rows} rows, more than {rules.max_rows}"
        elif (size := estimate_tokens(outcome.text)) > rules.max_result_tokens:
            rule = "max_result_tokens"
            reason = f"the result has about {size} tokens, more than {rules.max_result_tokens}"
        else:
            return outcome
        await on_event(AgentStep(kind="mode", text=f"code ({rule}): {reason}"))
        beginning = outcome.text[:_SHOWN_CHARACTERS]
        return ToolOutcome(text=f"{beginning}... ({reason}: call the tool by code with execute_code, and print less)")

    async def _refuse(self, reason: str, on_event: OnEvent) -> ToolOutcome:
        await on_event(AgentStep(kind="results", text=reason, failed=True))
        return ToolOutcome(text=reason, failed=True, refused=True)


@dataclass(frozen=True, kw_only=True)
class TaskSetup:
    """Mode, prompt and tools of one task."""

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
