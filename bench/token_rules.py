"""Cost of hybrid agents on the transcripts, by the limits of their rules."""

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
        self._profiles: dict[tuple[str, int, bool], TaskProfile] = {}

    def run(self, transcript: Transcript, rules: HybridRules, *, is_known: bool) -> HybridCost:
        """Return the cost of a task. `is_known` is whether the application knows the rows, calls and servers."""
        offered = self._offer(transcript.prompt, rules.direct_tools)
        rows, calls, largest = measure(transcript)
        choice = rules.choose(self._profile(transcript, rules.direct_tools, is_known=is_known))
        if choice.mode == "code":
            fits = bool(offered) and estimate_definitions(offered) <= rules.max_definition_tokens
            cost = self._cost(
                transcript, "code", rules.direct_tools if fits else 0, notice=BY_CODE.format(choice.reason)
            )
            return HybridCost(mode="code", rule=choice.rule, cost=cost)
        names = {tool["name"] for tool in offered}
        within = rows <= rules.max_rows and calls <= rules.max_calls and largest <= rules.max_result_tokens
        if within and all(use["name"] in names for use in transcript.uses("direct")):
            return HybridCost(
                mode="direct", rule=choice.rule, cost=self._cost(transcript, "direct", rules.direct_tools)
            )
        return HybridCost(mode="code", rule="in task", cost=self._cost(transcript, "code", rules.direct_tools))

    def _profile(self, transcript: Transcript, tools: int, *, is_known: bool) -> TaskProfile:
        key = (transcript.task, tools, is_known)
        if key not in self._profiles:
            profile = TaskProfile.estimate(transcript.prompt, self._servers)
            if is_known:
                rows, calls, _ = measure(transcript)
                profile = profile.override(TaskProfile(rows=rows, calls=calls, servers=len(transcript.servers)))
            offered = self._offer(transcript.prompt, tools)
            size = estimate_definitions(offered)
            self._profiles[key] = profile.override(TaskProfile(definition_tokens=size))
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
    """Return the tokens and the money of all tasks."""
    costs = [agent.run(each, rules, is_known=is_known).cost for each in transcripts]
    return {
        "tokens": sum(cost.tokens for cost in costs),
        "cached": round(sum(cost.money("cached") for cost in costs), 2),
    }


def study(agent: HybridAgent, transcripts: Sequence[Transcript], *, is_known: bool) -> dict[str, Any]:
    """Return the best combination by money with caching, and the cost of each change of one of the default rules."""
    default = HybridRules()
    found = [(total(agent, transcripts, rules, is_known=is_known), rules) for rules in combinations()]
    cost, rules = min(found, key=lambda each: (each[0]["cached"], _distance(each[1], default)))
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
