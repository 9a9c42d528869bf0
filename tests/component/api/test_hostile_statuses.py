"""A real API server takes the status of a ToolServer, whatever the server lists, returns or says of itself."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import httpx
import pytest
from tests.component.api.test_definitions_on_a_server import API
from tests.support.control_plane import ROOT, running_control_plane
from tests.support.until import eventually

from mcp_exec_broker.core.catalog.entry import CatalogEntry, OutputInference, ToolListing
from mcp_exec_broker.core.catalog.resources import build_status
from mcp_exec_broker.core.upstream.servers import ToolServer
from mcp_exec_broker.core.upstream.tool_listing import ToolCollector, repair_listing
from mcp_exec_tools.catalog import Catalog

Object = dict[str, Any]
MOMENT: Final = datetime(2026, 11, 22, tzinfo=UTC)
GOOD: Final[Object] = {"name": "good", "inputSchema": {"type": "object"}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with running_control_plane(tmp_path_factory.mktemp("plane") / "it") as plane:
        applied = plane.kubectl("apply", "--server-side", "-f", str(ROOT / "charts/mcp-exec/crds"))
        assert applied.returncode == 0, applied.stderr
        with plane.connect() as client:
            eventually(lambda: client.get(f"{API}/toolservers").is_success or None)
            item: Object = {"apiVersion": "mcp-exec.dev/v1beta1", "kind": "ToolServer", "metadata": {"name": "s"}}
            created = client.post(f"{API}/toolservers", json=item | {"spec": {"url": "http://s"}})
            assert created.is_success, created.text
            yield client


def make_status(*tools: Any, results: Any = (), **changes: Any) -> Object:
    """Return the status that the broker writes of a server with these tools, whose tool `good` has these results."""
    listed, collector = repair_listing({"tools": [GOOD, *tools]}, is_modern=True), ToolCollector()
    collector.add_all(listed["tools"])
    item: Object = {"metadata": {"namespace": "default", "name": "s", "generation": 1}, "spec": {"url": "http://s"}}
    seen, inference = ToolServer.from_object(item), OutputInference()
    listing = ToolListing(
        catalog=Catalog.from_tools("s", collector.tools), declared={}, expires=0.0,
        omitted=tuple(collector.omitted), omitted_count=collector.omitted_count,
    )  # fmt: skip
    for value in results:
        inference.observe(seen.key, listing.catalog.tools[0], value, size=1)
    given = {"available": True, "generation": 1, "listed_at": MOMENT, "listing": listing} | changes
    return build_status(seen, CatalogEntry(**given), inference.get_schemas(seen.key), moment=MOMENT)


STATUSES: Final[dict[str, Object]] = {
    "an empty name": make_status({"name": ""}),
    "no name": make_status({}, {"name": None}, {"name": 5}, None, "text", [1]),
    "blanks": make_status({"name": " "}, {"name": "\t\n"}, {"name": "\u00a0"}, {"name": "\u200b"}),
    "control characters": make_status({"name": "a\x00b"}, {"name": "\x1b[31m"}, {"name": "\u202e"}),
    "half a character": make_status({"name": "\ud800"}),
    "a long name": make_status({"name": "x" * 1_000_000}, {"name": "\U0001f600" * 1000}),
    "a name twice": make_status(GOOD | {"description": "another"}),
    "many": make_status(*({"name": " " * number} for number in range(1, 1000))),
    "odd fields": make_status({"name": "odd", "title": "", "description": "\x00", "annotations": {"title": ""}}),
    "empty results": make_status(results=["", {"": ""}, {"": {"": None}}, [], [""], None]),
    "odd keys": make_status(results=[{"\x00": 1}, {"\ud800": 1}, {"$ref": "#"}, {"a.b/c~d": [{}]}]),
    "a deep result": make_status(results=[[[[[[[[[[[[]]]]]]]]]]]]),
    "an identity of blanks": make_status(identity=" "),
    "an odd identity": make_status(identity="\x00\ud800\U0001f600", protocol_version="2025-11-25"),
    "an odd error": make_status(available=False, reason="NotMCP", message="\x00\x1b[31m\ud800\n" * 500),
    "an error without words": make_status(available=False, reason="NotMCP", message=""),
}


@pytest.mark.parametrize("kind", STATUSES)
def test_an_api_server_takes_the_status(server: httpx.Client, kind: str) -> None:
    answer = server.patch(
        f"{API}/toolservers/s/status?fieldValidation=Strict",
        content=json.dumps({"status": STATUSES[kind]}),
        headers={"content-type": "application/merge-patch+json"},
    )
    assert answer.is_success, answer.text
    assert answer.json()["status"]["available"] is STATUSES[kind]["available"]


def list_empty(value: Any, place: str = "status") -> list[str]:
    """Return the places of empty texts, which some API servers read as null and reject in typed fields."""
    if isinstance(value, dict):
        return [found for name, item in value.items() for found in list_empty(item, f"{place}.{name}")]
    if isinstance(value, list):
        return [found for number, item in enumerate(value) for found in list_empty(item, f"{place}[{number}]")]
    return [place] if value == "" else []


@pytest.mark.parametrize("kind", STATUSES)
def test_no_typed_field_of_a_status_is_empty(kind: str) -> None:
    assert list_empty({**STATUSES[kind], "inferredOutputs": None}) == []


def test_a_tool_without_a_name_is_shown_among_those_that_are_left_out() -> None:
    status = make_status({"name": ""}, {"name": None}, {"name": "  "}, {"name": "delete all"})
    assert (status["tools"], status["omitted"]) == (1, 4)
    assert [each["name"] for each in status["omittedTools"]] == ["(no name)", "(no name)", "(no name)", "delete all"]
    assert status["omittedTools"][0]["reason"] == "it has no name"
