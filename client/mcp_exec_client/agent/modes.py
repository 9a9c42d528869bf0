"""The mode of a task: by code or by direct calls, with its tools and its system prompt."""

import inspect
import json
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias, get_args

from mcp_exec_client.agent.code_mode import CodeMode
from mcp_exec_client.agent.conversation import ConversationHistory, Opening
from mcp_exec_client.agent.direct_mode import SYSTEM_PROMPT, DirectMode
from mcp_exec_client.agent.hybrid_rules import HybridRules, ModeChoice, TaskProfile
from mcp_exec_client.agent.outcomes import AgentError, Mode
from mcp_exec_client.agent.providers.model import Block
from mcp_exec_client.agent.task_tools import TaskTools
from mcp_exec_client.client import AsyncClient
from mcp_exec_client.errors import McpExecError
from mcp_exec_tools.prompt import fenced_prompt
from mcp_exec_tools.text import estimate_tokens

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


VARIABLE: Final = "MCP_EXEC_FORCE_DIRECT"
"""Environment variable of the switch."""
_ON: Final = ("1", "true", "yes", "on")
_OFF: Final = ("", "0", "false", "no", "off")
KillSwitch: TypeAlias = bool | Callable[[], bool | Awaitable[bool]]
"""A value, or a function that is called before each task, for example one that reads a flag."""
HYBRID_PROMPT: Final = (
    "\nTools whose name contains `__` can also be called directly: do so for a single call with a short result, and "
    "use code for everything else.\n"
)

_SERVERS: Final = "The servers whose tools your code may call are now: {}."
BY_CODE: Final = "Do this task by code, not by direct calls: {}."


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


@dataclass(frozen=True, kw_only=True)
class TaskSetup:
    """Mode and tools of one task."""

    choice: ModeChoice
    opening: Opening
    tools: TaskTools
    servers: frozenset[str] = frozenset()
    """Servers of tools that the model knows with this task."""
    notices: tuple[str, ...] = ()
    """What has changed in the conversation with this task."""

    def build_message(self, task: str) -> Block:
        """Return the user's message, to which the notices are appended."""
        if not self.notices:
            return {"role": "user", "content": task}
        return {"role": "user", "content": [{"type": "text", "text": text} for text in (task, *self.notices)]}


@dataclass(kw_only=True)
class ModeSelection:
    """Chooses the mode of each task of a conversation.

    System prompt and tools are those of the conversation's first task. What changes later is a text of the task.
    """

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

    async def prepare(
        self, task: str, expected: TaskProfile | None, history: ConversationHistory, *, assigns: bool = True
    ) -> TaskSetup:
        """Return the setup of a task after earlier ones. Raises AgentError and McpExecError.

        Without `assigns`, the rollout is not asked: an assignment counts as an exposure. If the kill switch or the
        rollout changes the mode of the conversation, its opening is another one, and a new conversation begins.
        """
        choice = await self._choose_mode(self.rollout if assigns else None)
        kept = history.opening if history.opening is not None and history.opening.mode == choice.mode else None
        if choice.mode == "direct":
            opening = kept or self._open("direct", SYSTEM_PROMPT, await self.direct.tools())
            tools = TaskTools(code=None, direct=self.direct, definitions=opening.definitions)
            return TaskSetup(choice=choice, opening=opening, tools=tools)
        servers = frozenset(tool.server for tool in await self.code.find_tools("", "name_only"))
        told = () if kept is None or servers == history.servers else (_SERVERS.format(", ".join(sorted(servers))),)
        if choice.mode == "hybrid":
            return await self._set_up_hybrid(task, expected, kept=kept, servers=servers, told=told)
        fenced = "" if self.shows_tools else fenced_prompt(language=self.code.language)
        opening = kept or self._open("code", await self.code.system_prompt() + fenced, self.code.tools())
        tools = self._allow(opening, rules=None)
        return TaskSetup(choice=choice, opening=opening, tools=tools, servers=servers, notices=told)

    async def _choose_mode(self, rollout: RolloutUnit | None) -> ModeChoice:
        """Return the mode before the rules: by the kill switch, else the rollout, else the application."""
        reason = await find_kill_reason(self.kill_switch)
        if reason:
            return ModeChoice(mode="direct", rule="kill_switch", reason=reason)
        if not self.shows_tools:
            return ModeChoice(mode="code", rule="no_tools", reason="the model cannot use tools")
        own = ModeChoice(mode=self.mode, rule="option", reason="the application's choice")
        return own if rollout is None else await rollout.choose(own)

    async def _set_up_hybrid(
        self,
        task: str,
        expected: TaskProfile | None,
        *,
        kept: Opening | None,
        servers: frozenset[str],
        told: tuple[str, ...],
    ) -> TaskSetup:
        """Choose by the rules. The tools of a first task that is done directly can be called directly in all tasks."""
        matching, size = await self._match(task)
        sized = TaskProfile(definition_tokens=size)
        choice = self.rules.choose(TaskProfile.estimate(task, servers).override(sized).override(expected))
        opening = kept
        if opening is None:
            # a task that is done by code does not pay for definitions in each of its requests
            definitions = [*self.code.tools(), *(matching if choice.mode == "direct" else [])]
            opening = self._open("hybrid", await self.code.system_prompt() + HYBRID_PROMPT, definitions)
        if choice.mode == "direct" and matching and not any(tool in opening.definitions for tool in matching):
            choice = ModeChoice(mode="code", rule="first_task", reason="the conversation began with other direct tools")
        tools = self._allow(opening, rules=self.rules)
        if choice.mode == "code":
            tools.only_code = choice.reason
            told += (BY_CODE.format(choice.reason),)
        return TaskSetup(choice=choice, opening=opening, tools=tools, servers=servers, notices=told)

    async def _match(self, task: str) -> tuple[list[Block], int]:
        """Return the definitions of the best matches that fit together, and their estimated tokens.

        If the best one does not fit, there are none, and the tokens are its own.
        """
        matches = await self.code.find_tools(task[:200], "name_only")
        fitting: list[Block] = []
        size = 0
        for count in range(1, min(self.rules.direct_tools, len(matches)) + 1):
            found = await self.direct.tools({f"{tool.server}.{tool.name}" for tool in matches[:count]})
            needed = estimate_definitions(found)
            if needed > self.rules.max_definition_tokens:
                return fitting, size or needed
            fitting, size = found, needed
        return fitting, size

    def _open(self, mode: Mode, system: str, definitions: list[Block]) -> Opening:
        text = f"{system}\n{self.instructions}" if self.instructions else system
        return Opening(mode=mode, system=text, definitions=definitions)

    def _allow(self, opening: Opening, *, rules: HybridRules | None) -> TaskTools:
        """Return the tools of a task that may run code; with rules, also those of direct calls."""
        return TaskTools(
            code=self.code,
            direct=self.direct if rules else None,
            definitions=opening.definitions,
            rules=rules,
            max_failures=self.max_failures,
        )


def estimate_definitions(definitions: list[Block]) -> int:
    """Return the estimated tokens of tool definitions."""
    return estimate_tokens(json.dumps(definitions, ensure_ascii=False)) if definitions else 0
