"""The mode of a task: by code or by direct calls, with its tools and its system prompt.

Code pays if the model would otherwise read much data, make a chain of calls, or fan out over many items; a single small
call is cheaper directly."""

import inspect
import json
import logging
import os
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final, Self, TypeAlias, get_args

from mcp_exec_client.agent.code_mode import CODE_TOOL_NAMES, CodeMode
from mcp_exec_client.agent.conversation import ConversationHistory, Opening
from mcp_exec_client.agent.direct_mode import SYSTEM_PROMPT, DirectMode, count_rows
from mcp_exec_client.agent.outcomes import AgentError, AgentStep, Mode, OnEvent, ToolOutcome
from mcp_exec_client.agent.providers.model import Block
from mcp_exec_client.client import AsyncClient
from mcp_exec_client.errors import McpExecError
from mcp_exec_tools.text import estimate_tokens

MAX_TASK: Final = 20_000
"""Most characters of a task that are searched for signs of its kind."""
_POLLING: Final = re.compile(
    r"\b(?:poll(?:ing|s)?|wait (?:until|for|till)|keep (?:checking|trying)|monitor|watch(?:ing)? (?:for|the|until)"
    r"|every \d{1,6} ?(?:s|sec|seconds?|min|minutes?|hours?)|as soon as)\b",
    re.IGNORECASE,
)
_ROWS: Final = re.compile(
    r"\b(\d{1,3}(?:[,. ]\d{3}){1,3}|\d{1,9})(k?)[ -](?:rows?|records?|items?|entries|lines?|orders?|expenses?|messages?"
    r"|issues|files|documents|users|customers|events|transactions|results)\b",
    re.IGNORECASE,
)
_REDUCING: Final = re.compile(
    r"\b(?:how many|total|sum of|average|mean (?:of|value)|median|count|group(?:ed)? by"
    r"|per (?:month|day|week|customer|user|category)"
    r"|largest|smallest|highest|lowest|most|least|top \d{1,6}|filter|duplicates?|aggregate|statistics)\b",
    re.IGNORECASE,
)
_FAN_OUT: Final = re.compile(
    r"\b(?:for each|for every|each of|every one of|all (?:of )?(?:the|my|our))\b", re.IGNORECASE
)
_STEP: Final = re.compile(r"\b(?:then|after that|afterwards|finally|and also)\b|^[ ]{0,8}\d{1,2}[.)] ", re.I | re.M)
_MANY_CALLS: Final = 10
"""Calls that are assumed for a task over each of many items."""
log = logging.getLogger(__name__)
_MODES: Final = get_args(Mode)


@dataclass(frozen=True, kw_only=True)
class TaskProfile:
    """Expectations of a task. None means unknown."""

    rows: int | None = None
    """Rows or items that the tools return in total."""
    calls: int | None = None
    """Tool calls."""
    polling: bool | None = None
    """Whether the task waits for something."""
    reducing: bool | None = None
    """Whether the answer is a number or a selection of much data."""
    servers: int | None = None
    """Servers whose tools the task needs."""
    definition_tokens: int | None = None
    """Estimated tokens of the definitions of the tools that direct calls would offer."""

    @classmethod
    def estimate(cls, task: str, servers: Collection[str]) -> Self:
        """Estimate a profile from the words of a task; `servers` are the names of those that it may use."""
        text = task[:MAX_TASK]
        rows = [int(re.sub(r"\D", "", number)) * (1000 if kilo else 1) for number, kilo in _ROWS.findall(text)]
        calls = _MANY_CALLS if _FAN_OUT.search(text) else 1 + len(_STEP.findall(text))
        words = set(re.findall(r"[a-z0-9]+(?:-[a-z0-9]+)*", text.lower()))
        return cls(
            rows=max(rows, default=None),
            calls=calls,
            polling=_POLLING.search(text) is not None,
            reducing=_REDUCING.search(text) is not None,
            servers=sum(server.lower() in words for server in servers) or None,
        )

    def override(self, given: "TaskProfile | None") -> "TaskProfile":
        """Return the profile with what an application knows."""
        known = {} if given is None else {name: value for name, value in asdict(given).items() if value is not None}
        return replace(self, **known)


@dataclass(frozen=True, kw_only=True)
class ModeChoice:
    """A mode, and why."""

    mode: Mode
    reason: str
    rule: str = ""
    """The rule that decided, or where the mode comes from."""


@dataclass(frozen=True, kw_only=True)
class HybridRules:
    """Rules of a hybrid agent. A task is done by code if one of them applies, otherwise by direct calls.

    The limits of rows, of result tokens and of calls also hold while direct calls are made: a larger result is cut, and
    a further call is refused, both with the advice to use code. `bench/tokens.py` has the cost of other values.
    """

    max_rows: int = 100
    """More rows: code."""
    max_calls: int = 2
    """More calls: code."""
    max_servers: int = 1
    """More servers: code."""
    max_definition_tokens: int = 500
    """Larger definitions of the tools that match the task: code."""
    max_result_tokens: int = 2000
    """More tokens of one result, as an estimate: code. Rows say nothing about a long document."""
    polling: bool = True
    """Whether waiting for something means code."""
    reducing: bool = True
    """Whether a number or a selection of much data means code."""
    direct_tools: int = 5
    """Tools that a direct task is offered: the best matches of its words."""

    def __post_init__(self) -> None:
        for rule in fields(self):
            value, kind = getattr(self, rule.name), bool if rule.type is bool else int
            if type(value) is not kind or value < 0:
                expected = "true or false" if kind is bool else "a whole number from 0"
                raise ValueError(f"{rule.name} is {value!r}; it must be {expected}")

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any]) -> Self:
        """Return rules with these values, for example from a file. Raises ValueError for one that does not exist."""
        allowed = [rule.name for rule in fields(cls)]
        if unknown := sorted(set(given) - set(allowed)):
            raise ValueError(f"unknown rule {unknown[0]!r}; allowed are {', '.join(allowed)}")
        return cls(**given)

    def to_mapping(self) -> dict[str, int | bool]:
        """Return all rules with their values."""
        return asdict(self)

    def choose(self, profile: TaskProfile) -> ModeChoice:
        """Return the mode of a task and the rule that decides."""
        for rule, applies, describe in self._list_checks(profile):
            if applies:
                return ModeChoice(mode="code", rule=rule, reason=describe())
        return ModeChoice(mode="direct", rule="small", reason="one small call is expected")

    def _list_checks(self, profile: TaskProfile) -> list[tuple[str, bool, Callable[[], str]]]:
        rows, calls, servers = profile.rows or 0, profile.calls or 1, profile.servers or 1
        size = profile.definition_tokens or 0
        return [
            ("polling", self.polling and bool(profile.polling), lambda: "the task waits for something"),
            ("max_rows", rows > self.max_rows, lambda: f"{rows} rows are expected, more than {self.max_rows}"),
            ("max_servers", servers > self.max_servers, lambda: f"{servers} servers are needed"),
            ("max_calls", calls > self.max_calls, lambda: f"{calls} calls are expected, more than {self.max_calls}"),
            ("reducing", self.reducing and bool(profile.reducing), lambda: "the answer reduces much data"),
            (
                "max_definition_tokens",
                size > self.max_definition_tokens,
                lambda: f"the definitions have about {size} tokens, more than {self.max_definition_tokens}",
            ),
        ]


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

_SERVERS: Final = "The servers whose tools your code may call are now: {}."
_BY_CODE: Final = "Do this task by code, not by direct calls: {}."


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
    only_code: str = ""
    """Why a hybrid task is done by code: direct calls are refused. Empty if they are allowed."""
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
        if self.only_code:
            reason = f"this task is done by code ({self.only_code}): call the tool in a block of execute_code"
            return await self._refuse(reason, on_event)
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
        fenced = "" if self.shows_tools else _FENCED
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
        """Choose by the rules. The tools that match the first task can be called directly in all tasks."""
        matches = await self.code.find_tools(task[:200], "name_only")
        matching = await self.direct.tools(
            {f"{tool.server}.{tool.name}" for tool in matches[: self.rules.direct_tools]}
        )
        sized = TaskProfile(definition_tokens=estimate_definitions(matching))
        choice = self.rules.choose(TaskProfile.estimate(task, servers).override(sized).override(expected))
        opening = kept
        if opening is None:
            fits = estimate_definitions(matching) <= self.rules.max_definition_tokens
            definitions = [*self.code.tools(), *(matching if fits else [])]
            opening = self._open("hybrid", await self.code.system_prompt() + HYBRID_PROMPT, definitions)
        if choice.mode == "direct" and matching and not any(tool in opening.definitions for tool in matching):
            choice = ModeChoice(mode="code", rule="first_task", reason="the conversation began with other direct tools")
        tools = self._allow(opening, rules=self.rules)
        if choice.mode == "code":
            tools.only_code = choice.reason
            told += (_BY_CODE.format(choice.reason),)
        return TaskSetup(choice=choice, opening=opening, tools=tools, servers=servers, notices=told)

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
