"""What lasts, for MCP clients: sessions, artifacts as images and links, files of workspaces."""

import base64
from typing import Any

import pytest
from mcp import MCPError
from tests.component.gateway.conftest import CEX, Gateway
from tests.component.gateway.mcp_client import MODERN, REVISIONS, connecting
from tests.component.gateway.test_artifacts import PNG, add_artifacts
from tests.component.gateway.test_sessions import two_callers
from tests.support.broker import FakeBroker

from mcp_exec_api.files import Owner
from mcp_exec_api.wire.sessions import NewSession
from mcp_exec_common.broker.files import FilesReason
from mcp_exec_gateway.features.mcp.budget import TokenBudget
from mcp_exec_gateway.features.mcp.code_mode.output import MAX_IMAGE_BYTES, MAX_IMAGES

JPEG = b"\xff\xd8\xff\xe0" + bytes(50)


@pytest.fixture
def gateway(gateway_with_broker: Gateway) -> Gateway:
    return gateway_with_broker


def produce_all(gateway: Gateway, broker: FakeBroker, *artifacts: tuple[str, str, bytes]) -> None:
    """Finish each execution as soon as it is created, with these artifacts."""

    def finish(collection: str, item: dict[str, Any]) -> None:
        if collection == CEX:
            add_artifacts(gateway, broker, item["metadata"]["name"], *artifacts)

    gateway.api.on_create = finish


@pytest.mark.parametrize("revision", REVISIONS)
async def test_figures_are_shown_as_images_and_everything_has_a_link(
    gateway: Gateway, broker: FakeBroker, revision: str
) -> None:
    produce_all(
        gateway,
        broker,
        ("plot.png", "image/png", PNG),
        ("photo.jpg", "image/jpeg", JPEG),
        ("fake.png", "image/png", b"<script>"),
        ("table.csv", "text/csv", b"a,b\n"),
    )
    async with connecting(gateway.url, revision) as client:
        result = await client.call_tool("run_code", {"code": "1"})
    assert not result.is_error
    text, *rest = result.content
    images = [each for each in rest if each.type == "image"]
    links = [each for each in rest if each.type == "resource_link"]
    assert [(each.mime_type, base64.b64decode(each.data)) for each in images] == [
        ("image/png", PNG),
        ("image/jpeg", JPEG),
    ]
    assert [each.name for each in links] == ["plot.png", "photo.jpg", "fake.png", "table.csv"]
    assert "- 'table.csv' (text/csv, 4 bytes) 'T3'\nsome text" in text.text
    answer = await gateway.ask("GET", str(links[3].uri).removeprefix(gateway.url), key=None)
    assert (answer.status, answer.text) == (200, "a,b\n")
    structured = result.structured_content["artifacts"]
    assert [each["id"] for each in structured] == ["a0", "a1", "a2", "a3"]
    assert {"url", "expiresAt"} <= structured[0].keys()
    assert gateway.dependencies.memory.used == 0


async def test_images_are_bounded_in_number_and_size_and_a_missing_one_is_a_link_alone(
    gateway: Gateway, broker: FakeBroker
) -> None:
    large = PNG + bytes(MAX_IMAGE_BYTES)
    produce_all(gateway, broker, ("large.png", "image/png", large), *[("p.png", "image/png", PNG)] * 6)
    async with connecting(gateway.url, MODERN) as client:
        kinds = [each.type for each in (await client.call_tool("run_code", {"code": "1"})).content]
        assert (kinds.count("image"), kinds.count("resource_link")) == (MAX_IMAGES, 7)
        broker.files.refusal = FilesReason.UNAVAILABLE
        result = await client.call_tool("run_code", {"code": "1"})
    assert not result.is_error
    assert [each.type for each in result.content] == ["text", *["resource_link"] * 7]


async def test_session_and_workspace_are_arguments_of_the_owner_that_the_url_names(gateway: Gateway) -> None:
    await two_callers(gateway, maxSessions=1)
    gateway.finish_all()
    async with connecting(gateway.url, MODERN, query="?user=ann") as client:
        result = await client.call_tool("run_code", {"code": "1", "session": "s", "workspace": "w"})
        assert not result.is_error
        for arguments, wrong in (
            ({"session": "Not A Name"}, "session: "),
            ({"workspace": "Not A Name"}, "workspace: "),
            ({"workspace": "w", "user": "bob"}, "unknown arguments: user"),
        ):
            refused = await client.call_tool("run_code", {"code": "1", **arguments})
            assert refused.is_error
            assert refused.content[0].text.startswith(wrong), refused.content[0].text
        with pytest.raises(MCPError, match="has 1 sessions, which is its limit"):
            await client.call_tool("run_code", {"code": "1", "session": "second"})
    (stored,) = gateway.executions.values()
    spec = stored["spec"]
    assert (spec["session"], spec["workspace"], spec["user"]) == ("s", {"name": "w", "mode": "Write"}, "ann")
    assert NewSession(name=spec["session"]).name == "s"


async def test_files_are_written_read_and_listed(gateway: Gateway, broker: FakeBroker) -> None:
    async with connecting(gateway.url, MODERN, query="?user=ann") as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        assert {"read_file", "run_code", "write_file"} <= tools
        shown = TokenBudget().characters
        text = "ü" + "word " * (shown // 5) + "ends"
        written = await client.call_tool("write_file", {"workspace": "w", "path": "notes/a.txt", "content": text})
        assert (written.is_error, written.structured_content["version"]) == (False, 1)
        owner = Owner(namespace="agents", caller="team-a", user="ann").digest
        broker.files.workspaces[owner, "w"].versions[-1]["p.png"] = PNG
        broker.files.workspaces[owner, "w"].versions[-1]["x.bin"] = b"\xff\x00"
        first = await client.call_tool("read_file", {"workspace": "w", "path": "notes/a.txt"})
        assert first.content[0].text.endswith("(5 more characters: read on with offset 20000)")
        rest = await client.call_tool("read_file", {"workspace": "w", "path": "notes/a.txt", "offset": shown})
        assert first.content[0].text[:shown] + rest.content[0].text == text
        for offset in (len(text), len(text) + 5):
            beyond = await client.call_tool("read_file", {"workspace": "w", "path": "notes/a.txt", "offset": offset})
            said = f"(notes/a.txt has {len(text)} characters: offset {offset} is its end or beyond)"
            assert beyond.content[0].text == said
        await client.call_tool("write_file", {"workspace": "w", "path": "b.txt", "content": ""})
        for offset in (0, 5):
            empty = await client.call_tool("read_file", {"workspace": "w", "path": "b.txt", "offset": offset})
            assert empty.content[0].text == "(b.txt has 0 characters: it is empty)"
        dense = await client.call_tool("write_file", {"workspace": "w", "path": "b.txt", "content": "\u4e2d" * shown})
        dense = await client.call_tool("read_file", {"workspace": "w", "path": "b.txt"})
        assert "more characters: read on with offset" in dense.content[0].text
        assert len(dense.content[0].text) < shown // 2
        broker.files.workspaces[owner, "w"].versions[-1].pop("b.txt")
        image = await client.call_tool("read_file", {"workspace": "w", "path": "p.png"})
        assert (image.content[0].mime_type, base64.b64decode(image.content[0].data)) == ("image/png", PNG)
        listed = await client.call_tool("read_file", {"workspace": "w"})
        assert [each["path"] for each in listed.structured_content["files"]] == ["notes/a.txt", "p.png", "x.bin"]
        folder = await client.call_tool("read_file", {"workspace": "w", "path": "notes"})
        assert folder.content[0].text == f"notes/a.txt ({len(text.encode())} bytes)"
        for tool, arguments, wrong in (
            ("read_file", {"path": "x.bin"}, "neither text nor a PNG or JPEG"),
            ("read_file", {"path": "gone"}, "has no file 'gone'"),
            ("read_file", {"path": "../x"}, "a path is relative"),
            ("read_file", {"path": "a", "offset": -1}, "offset must be"),
            ("read_file", {"path": 5}, "path must be a text"),
            ("write_file", {"path": "../x", "content": "1"}, "a path is relative"),
            ("write_file", {"path": "a"}, "content must be a text"),
            ("write_file", {"path": "a", "content": "1", "mode": 1}, "unknown arguments: mode"),
        ):
            result = await client.call_tool(tool, {"workspace": "w", **arguments})
            assert result.is_error
            assert wrong in result.content[0].text, (tool, arguments, result.content[0].text)
        assert (await client.call_tool("read_file", {"workspace": "gone"})).is_error
    assert {query["owner"] for path, query in broker.asked if "workspaces" in path} == {owner}


async def test_the_content_of_a_file_may_be_called_text(gateway: Gateway, broker: FakeBroker) -> None:
    async with connecting(gateway.url, MODERN, query="?user=ann") as client:
        file = {"workspace": "w", "path": "a.txt"}
        for content in ({"text": "from text"}, {"content": "from content"}, {"text": ""}):
            written = await client.call_tool("write_file", file | content)
            assert not written.is_error, written.content[0].text
            read = await client.call_tool("read_file", file)
            assert read.structured_content["text"] == next(iter(content.values()))
        for both in ({"content": "1", "text": "2"}, {"text": "2", "content": "1"}):
            refused = await client.call_tool("write_file", file | both)
            assert refused.is_error
            assert "unknown arguments: text" in refused.content[0].text
        assert (await client.call_tool("read_file", file)).structured_content["text"] == ""
        for wrong in ({"text": 5}, {"text": None}, {}):
            refused = await client.call_tool("write_file", file | wrong)
            assert "content must be a text" in refused.content[0].text


async def test_a_broker_that_is_away_is_an_error_of_the_protocol(gateway: Gateway, broker: FakeBroker) -> None:
    broker.files.refusal = FilesReason.UNAVAILABLE
    async with connecting(gateway.url, MODERN) as client:
        with pytest.raises(MCPError, match="the broker, which stores files, does not answer"):
            await client.call_tool("read_file", {"workspace": "w", "path": "a"})
