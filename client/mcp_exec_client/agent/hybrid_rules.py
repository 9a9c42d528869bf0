"""Whether a task is done by code or by direct calls, from what is expected of it.

Code pays if the model would otherwise read much data, make a chain of calls, or fan out over many items. A few small
calls are faster directly: the model needs a turn less, because it reads no schemas before.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final, Self

from mcp_exec_client.agent.outcomes import Mode

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
    a further call is refused, both with the advice to use code. `bench/tokens.py` has the cost and the turns of other
    values.
    """

    max_rows: int = 100
    """More rows: code."""
    max_calls: int = 3
    """More calls: code."""
    max_servers: int = 1
    """More servers: code."""
    max_definition_tokens: int = 500
    """Tokens of the definitions that a direct task is offered. A larger definition of the best match: code."""
    max_result_tokens: int = 2000
    """More tokens of one result, as an estimate: code. Rows say nothing about a long document."""
    polling: bool = True
    """Whether waiting for something means code."""
    reducing: bool = True
    """Whether a number or a selection of much data means code."""
    direct_tools: int = 5
    """Most tools that a direct task is offered: the best matches of its words."""

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
