"""Queries of the benchmark of the tool search, and the catalogs that they are asked of.

Queries are in bench/data, each with the tools that answer it. A query of queries.json or requests.json is not used for
tuning if its SHA-256, as a number, is odd; the rule is older than the search. Nothing is tuned with those, nor with the
queries of unseen.json, which were written in the words of users before the ranking was changed for such queries.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mcp_exec_tools.catalog import Catalog

ROOT: Final = Path(__file__).parents[1]
QUERIES: Final = ROOT / "bench" / "data" / "queries.json"
UNSEEN: Final = ROOT / "bench" / "data" / "unseen.json"
REQUESTS: Final = ROOT / "bench" / "data" / "requests.json"
TUNING: Final = ROOT / "bench" / "data" / "tuning.json"
MADE: Final = ROOT / "bench" / "data" / "made.json"
"""Made servers with six things each, the verbs of their tools, and parameters. Their subjects are none of the real
servers', so that no made tool answers a query."""
CATALOGS: Final = (ROOT / "servers" / "catalogs", ROOT / "tests" / "data" / "catalogs")
"""Catalogs of the servers whose wrappers ship, and of two more."""
SERVERS: Final = frozenset(
    {"context7", "everything", "fetch", "filesystem", "git", "github", "memory", "sequential-thinking", "slack-npm"}
    | {"supabase", "time"}
)
DEMO: Final = frozenset({"calculator", "database", "expenses", "sheets", "trips", "weather"})
ARCHIVED, OFFICIAL = "github", "github-official"


@dataclass(frozen=True, kw_only=True)
class DiscoveryQuery:
    """A query and the tools that answer it."""

    text: str
    tools: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class QuerySet:
    """Queries, and the catalogs that they are asked of."""

    queries: Sequence[DiscoveryQuery]
    catalogs: Sequence[Catalog]
    is_for_tuning: bool = False
    """Whether the queries may be looked at and the ranking be tuned by them."""

    @property
    def size(self) -> int:
        """The number of tools that are searched."""
        return sum(len(each.tools) for each in self.catalogs)

    def extend(self, size: int) -> "QuerySet":
        """Return the same queries with so many tools in all: the set's own first, then made ones."""
        made = [Catalog.from_tools(server, tools) for server, tools in make_tools(max(size - self.size, 0)).items()]
        return QuerySet(queries=self.queries, catalogs=[*self.catalogs, *made], is_for_tuning=self.is_for_tuning)


def is_held_out(text: str) -> bool:
    """Return whether a query is held out."""
    return int(hashlib.sha256(text.encode()).hexdigest(), 16) % 2 == 1


def read_catalogs(servers: frozenset[str] = SERVERS) -> list[Catalog]:
    """Read the catalogs of servers."""
    found = [json.loads(path.read_text()) for folder in CATALOGS for path in sorted(folder.glob("*.json"))]
    return [Catalog.from_tools(each["server"], each["tools"]) for each in found if each["server"] in servers]


def query_sets() -> dict[str, QuerySet]:
    """Return all queries. Of GitHub's two servers an execution has one, so each has queries of its own."""
    old, unseen, requests, tuning = (json.loads(path.read_text()) for path in (QUERIES, UNSEEN, REQUESTS, TUNING))
    split = _parse(old["queries"])
    real, with_demo = read_catalogs(), read_catalogs(SERVERS | DEMO)
    current = (SERVERS | DEMO | {OFFICIAL}) - {ARCHIVED}
    all_archived, all_current = read_catalogs(SERVERS | DEMO | {"slack"}), read_catalogs(current | {"slack"})
    sets = {
        "tune": QuerySet(
            queries=[each for each in split if not is_held_out(each.text)] + _parse(old["more to tune by"]),
            catalogs=real,
            is_for_tuning=True,
        ),
        "tune, demo servers": QuerySet(
            queries=_parse(old["to tune by, with the demo servers"]), catalogs=with_demo, is_for_tuning=True
        ),
        "held out": QuerySet(queries=[each for each in split if is_held_out(each.text)], catalogs=real),
        "unseen": QuerySet(queries=_parse(unseen["queries"]), catalogs=with_demo),
        "unseen, GitHub's current server": QuerySet(
            queries=_parse(unseen["official"]), catalogs=read_catalogs(current)
        ),
    }
    for name, catalogs in (
        ("english", all_archived),
        ("english, GitHub's current server", all_current),
        ("other languages", all_archived),
    ):
        asked = _parse(requests[name])
        looked_at = [each for each in asked if not is_held_out(each.text)]
        counted = [each for each in asked if is_held_out(each.text)]
        sets[f"requests looked at, {name}"] = QuerySet(queries=looked_at, catalogs=catalogs, is_for_tuning=True)
        sets[f"requests counted, {name}"] = QuerySet(queries=counted, catalogs=catalogs)
    for name, catalogs in (("english", all_archived), ("english, GitHub's current server", all_current)):
        sets[f"tune, {name}"] = QuerySet(queries=_parse(tuning[name]), catalogs=catalogs, is_for_tuning=True)
    return sets


def make_tools(count: int) -> dict[str, list[dict[str, Any]]]:
    """Return so many distinct tools as entries of `tools/list` by server, the same for each call.

    Raises ValueError if there are not as many.
    """
    found = json.loads(MADE.read_text())
    things, verbs, parameters = found["things"], found["verbs"], found["parameters"]
    # Servers are filled evenly: with all that there is for one thing of each, then for the next.
    rows = zip(*(each.split() for each in things.values()), strict=True)
    tools = [(server, thing, verb) for row in rows for server, thing in zip(things, row, strict=True) for verb in verbs]
    if count > len(tools):
        raise ValueError(f"{count} tools were wanted, {len(tools)} can be made")
    made: dict[str, list[dict[str, Any]]] = {}
    for server, thing, verb in tools[:count]:
        text, names = verbs[verb]
        schema = {"type": "object", "properties": {name: parameters[name] for name in names}, "required": names[:1]}
        description = text.format(thing=thing.replace("_", " "), server=server.replace("-", " "))
        made.setdefault(server, []).append(
            {"name": f"{verb}_{thing}", "description": description, "inputSchema": schema}
        )
    return made


def _parse(found: Sequence[dict[str, Any]]) -> list[DiscoveryQuery]:
    return [DiscoveryQuery(text=each["query"], tools=frozenset(each["tools"])) for each in found]
