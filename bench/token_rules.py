"""Cost and turns of hybrid agents on the transcripts, by the limits of their rules."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

from token_costs import ArmCost, Count, cost_of, define
from transcripts import Arm, Transcript

from mcp_exec_client.agent import HybridRules, TaskProfile
from mcp_exec_client.agent.code_mode import TOOLS
from mcp_exec_client.agent.direct_mode import count_rows
from mcp_exec_client.agent.modes import BY_CODE, HYBRID_PROMPT, estimate_definitions
from mcp_exec_tools.catalog import Catalog
from mcp_exec_tools.prompt import system_prompt
from mcp_exec_tools.search.index import Index
from mcp_exec_tools.text import estimate_tokens

GRID: Mapping[str, Sequence[int | bool]] = {
    "max_rows": (20, 50, 100, 500),
    "max_calls": (1, 2, 3, 5, 12),
    "max_servers": (1, 2),
    "max_definition_tokens": (300, 500, 1000, 2000, 4000),
    "max_result_tokens": (500, 2000, 8000, 20_000),
    "direct_tools": (1, 2, 3, 5, 8),
    "polling": (True, False),
    "reducing": (True, False),
}
"""Values that are tried, in all combinations."""
TURN = 1.0
"""Thousandths of a dollar that a turn of the model weighs in the choice of the best rules. A turn takes seconds, more
than a call or the start of a warm sandbox, so it stands for the latency of a task."""


@dataclass(frozen=True, kw_only=True)
class HybridCost:
    """A task of a hybrid agent."""

    mode: str
    rule: str
    cost: ArmCost


class HybridAgent:
    """A hybrid agent on the transcripts: its choice for a task, and what the task costs then.

    If it chooses direct calls, but a needed tool is not among those that it offers, or a limit would be exceeded, its
    model uses code at once.
    """

    def __init__(self, count: Count, catalogs: Mapping[str, list[dict[str, Any]]]) -> None:
        self._count = count
        self._servers = sorted(catalogs)
        self._index = Index([Catalog.from_tools(server, tools) for server, tools in catalogs.items()])
        self._definitions = {
            (server, tool["name"].replace("-", "_")): define(server, tool)
            for server, tools in catalogs.items()
            for tool in tools
        }
        self._costs: dict[tuple[str, Arm, int, str], ArmCost] = {}
        self._offered: dict[tuple[str, int], list[dict[str, Any]]] = {}
        self._sizes: dict[tuple[str, int], int] = {}
        self._profiles: dict[tuple[str, bool], TaskProfile] = {}

    def run(self, transcript: Transcript, rules: HybridRules, *, is_known: bool) -> HybridCost:
        """Return the cost of a task. `is_known` is whether the application knows the rows, calls and servers."""
        tools, size = self._fit(transcript.prompt, rules)
        rows, calls, largest = measure(transcript)
        profile = self._profile(transcript, is_known=is_known).override(TaskProfile(definition_tokens=size))
        choice = rules.choose(profile)
        if choice.mode == "code":
            cost = self._cost(transcript, "code", 0, notice=BY_CODE.format(choice.reason))
            return HybridCost(mode="code", rule=choice.rule, cost=cost)
        names = {tool["name"] for tool in self._offer(transcript.prompt, tools)}
        within = rows <= rules.max_rows and calls <= rules.max_calls and largest <= rules.max_result_tokens
        if within and all(use["name"] in names for use in transcript.uses("direct")):
            return HybridCost(mode="direct", rule=choice.rule, cost=self._cost(transcript, "direct", tools))
        return HybridCost(mode="code", rule="in task", cost=self._cost(transcript, "code", tools))

    def _fit(self, prompt: str, rules: HybridRules) -> tuple[int, int]:
        """Return how many of the best matches fit together, and their size, or that of the best if it does not fit."""
        fitting, size = 0, 0
        for tools in range(1, rules.direct_tools + 1):
            needed = self._size(prompt, tools)
            if needed > rules.max_definition_tokens:
                return fitting, size or needed
            fitting, size = tools, needed
        return fitting, size

    def _size(self, prompt: str, tools: int) -> int:
        key = (prompt, tools)
        if key not in self._sizes:
            self._sizes[key] = estimate_definitions(self._offer(prompt, tools))
        return self._sizes[key]

    def _profile(self, transcript: Transcript, *, is_known: bool) -> TaskProfile:
        key = (transcript.task, is_known)
        if key not in self._profiles:
            profile = TaskProfile.estimate(transcript.prompt, self._servers)
            if is_known:
                rows, calls, _ = measure(transcript)
                profile = profile.override(TaskProfile(rows=rows, calls=calls, servers=len(transcript.servers)))
            self._profiles[key] = profile
        return self._profiles[key]

    def _offer(self, prompt: str, tools: int) -> list[dict[str, Any]]:
        key = (prompt, tools)
        if key not in self._offered:
            found = self._index.search(prompt[:200], limit=tools) if tools else []
            named = ((each["server"], each["name"].replace("-", "_")) for each in found)
            self._offered[key] = [self._definitions[name] for name in named if name in self._definitions]
        return self._offered[key]

    def _cost(self, transcript: Transcript, arm: Arm, tools: int, *, notice: str = "") -> ArmCost:
        """Return the cost by one arm with so many tools for direct calls, and a notice after the task."""
        key = (transcript.task, arm, tools, notice)
        if key not in self._costs:
            task, *others = transcript.arms[arm]
            told = [{"type": "text", "text": notice}] if notice else []
            self._costs[key] = cost_of(
                self._count,
                system=system_prompt(self._servers) + HYBRID_PROMPT,
                definitions=[*TOOLS, *self._offer(transcript.prompt, tools)] if tools else TOOLS,
                messages=[{**task, "content": [*task["content"], *told]}, *others],
            )
        return self._costs[key]


@cache
def measure(transcript: Transcript) -> tuple[int, int, int]:
    """Return the rows of the longest result, the number of calls, and the tokens of the largest result, estimated."""
    results = [block["content"] for message in transcript.arms["direct"][2::2] for block in message["content"]]
    rows = max((count_rows(text) for text in results), default=0)
    return rows, len(list(transcript.uses("direct"))), max(map(estimate_tokens, results), default=0)


def combinations() -> Iterator[HybridRules]:
    """Yield the rules of all combinations of the grid."""
    for values in product(*GRID.values()):
        yield HybridRules.from_mapping(dict(zip(GRID, values, strict=True)))


def total(
    agent: HybridAgent, transcripts: Sequence[Transcript], rules: HybridRules, *, is_known: bool
) -> dict[str, float]:
    """Return the tokens, the money and the turns of all tasks."""
    costs = [agent.run(each, rules, is_known=is_known).cost for each in transcripts]
    return {
        "tokens": sum(cost.tokens for cost in costs),
        "cached": round(sum(cost.money("cached") for cost in costs), 2),
        "turns": sum(cost.turns for cost in costs),
    }


def study(agent: HybridAgent, transcripts: Sequence[Transcript], *, is_known: bool) -> dict[str, Any]:
    """Return the best combination, and the cost of each change of one of the default rules.

    The best one has the least money with caching, each turn weighed as TURN.
    """
    default = HybridRules()
    found = [(total(agent, transcripts, rules, is_known=is_known), rules) for rules in combinations()]
    cost, rules = min(
        found, key=lambda each: (each[0]["cached"] + TURN * each[0]["turns"], _distance(each[1], default))
    )
    changes = {
        f"{name} = {value}": total(
            agent, transcripts, HybridRules.from_mapping(default.to_mapping() | {name: value}), is_known=is_known
        )
        for name, values in GRID.items()
        for value in values
        if getattr(default, name) != value
    }
    return {
        "combinations": len(found),
        "default": {"rules": default.to_mapping(), **total(agent, transcripts, default, is_known=is_known)},
        "best": {"rules": rules.to_mapping(), **cost},
        "changes": changes,
    }


def _distance(rules: HybridRules, default: HybridRules) -> int:
    return sum(value != getattr(default, name) for name, value in rules.to_mapping().items())
