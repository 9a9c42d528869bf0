"""Sandboxes, the operator's client and the broker with the other side of the release before, as it was recorded."""

import ast
import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.component.sandbox import protocol
from tests.component.sandbox.protocol import BROKER, FILES_GRANT, GRANT, PEERS
from tests.support.constants import DEADLINE
from tests.support.exchanges import Names, Object, Replay, compare, send_again

from mcp_exec_common.supervisor.tokens import token_digest
from mcp_exec_sandbox.supervisor.settings import PREFIX, Settings
from mcp_exec_tools.protocol import PROTOCOL_HEADER, format_protocols

RECORDS = sorted((Path(__file__).parents[2] / "data/protocol").glob("*.json"))
NOW = "now"


@pytest.fixture(scope="module")
def now(tmp_path_factory: pytest.TempPathFactory) -> Object:
    """The record of this tree."""
    return asyncio.run(protocol.record(tmp_path_factory.mktemp("record")))


@pytest.fixture(params=[*(path.stem for path in RECORDS), NOW])
def record(request: pytest.FixtureRequest, now: Object) -> Object:
    """The record of a release that this one has to understand, and that of this tree."""
    found = {path.stem: path for path in RECORDS}.get(request.param)
    loaded: Object = json.loads(found.read_text()) if found is not None else now
    return loaded


@pytest.fixture
def sandboxes() -> Iterator[dict[str, str]]:
    """URLs of the sandboxes of this tree."""
    started = protocol.start_sandboxes()
    yield {peer: protocol.find_url(each) for peer, each in started.items()}
    for each in started.values():
        each.close()


def find_wrappers(record: Object) -> bytes:
    return next(each["body"] for each in record["sandbox"] if each["path"] == "/v1/wrappers").encode()


async def test_a_sandbox_answers_the_operator_of_a_release_and_calls_its_broker(
    record: Object, sandboxes: dict[str, str]
) -> None:
    names = Names({GRANT: "a-grant", FILES_GRANT: "files-of-this-run"})
    replay = Replay(record["broker"], names)
    async with asyncio.timeout(DEADLINE), replay.running():
        names.texts[BROKER] = replay.url
        found = await send_again(
            record["sandbox"], urls=sandboxes, find_token=lambda each: protocol.token_of(each["peer"]), names=names
        )
    assert [*found, *replay.differences] == []


async def test_an_operator_understands_the_sandboxes_of_a_release(record: Object) -> None:
    names = Names({BROKER: "http://127.0.0.1:9", GRANT: "a-grant", FILES_GRANT: "files-of-this-run"})
    used, session = (
        Replay(
            [each for each in record["sandbox"] if each["peer"] == peer],
            names,
            proof_key=token_digest(protocol.token_of(peer)),
        )
        for peer in PEERS
    )
    async with asyncio.timeout(DEADLINE), used.running(), session.running():
        urls = dict(zip(PEERS, (used.url, session.url), strict=True))
        async with protocol.connecting(urls) as connections:
            await protocol.use(connections, find_wrappers(record), names)
    assert [*used.differences, *session.differences] == []


async def test_a_broker_answers_the_sandboxes_of_a_release(record: Object, tmp_path: Path) -> None:
    async with asyncio.timeout(DEADLINE), protocol.serving_broker(tmp_path) as world:
        names = protocol.name_texts(world.url)
        found = await send_again(
            record["broker"],
            urls={"broker": world.url},
            find_token=lambda each: names.texts[GRANT if each["path"] == "/v1/calls" else FILES_GRANT],
            names=names,
        )
    assert found == []


def test_a_sandbox_of_a_release_accepts_the_settings_of_this_one_and_the_other_way_round(record: Object) -> None:
    environment = protocol.build_environment()
    named = {name for name in environment if name.startswith(PREFIX)}
    assert named <= record["environment"].keys(), "a supervisor refuses settings that it does not know"
    for each in (environment, record["environment"]):
        assert Settings.from_environment(each).preimport == ("json",)


def test_wrappers_import_from_a_sandbox_of_a_release_only_what_it_has(record: Object, now: Object) -> None:
    files = json.loads(find_wrappers(now))["files"]
    trees = [ast.parse(text) for path, text in files.items() if path.endswith(".py")]
    imported = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names = {alias.name for node in imported if node.module == "client" for alias in node.names}
    assert "call_wrapped" in names
    assert names <= set(record["client"])


def test_requests_of_this_release_name_its_versions(now: Object) -> None:
    named = {each["headers"].get(PROTOCOL_HEADER.lower()) for each in now["sandbox"]}
    assert named == {format_protocols()}


@pytest.mark.parametrize(
    ("recorded", "changed", "difference"),
    [
        ({"a": 1}, {}, ".a is missing"),
        ({"a": 1}, {"a": "1"}, ".a: '1' instead of '1'"),
        ({"bytes": 1}, {"bytes": "1"}, ".bytes: '1' instead of '1'"),
        ({"reason": "A"}, {"reason": "B"}, ".reason: 'B' instead of 'A'"),
        ([{"type": "status"}], [{"type": "status"}, {"type": "new"}], ": ['status', 'new'] instead of ['status']"),
        ({"a": 1}, {"a": 1, "b": 2}, None),
        ({"bytes": 1}, {"bytes": 2}, None),
    ],
)
def test_what_a_reader_of_the_release_would_notice_is_a_difference(
    recorded: Any, changed: Any, difference: str | None
) -> None:
    found = compare(json.dumps(recorded).encode(), json.dumps(changed).encode())
    assert found == ([] if difference is None else [difference])
