"""Arguments of the client's methods: None means that one is not given, and a list of texts is not one text."""

import fractions
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, is_typeddict

import httpx
import pytest
from tests.support.scripted_gateway import URL, ScriptedGateway, execution, problem, scripted

from mcp_exec_api.wire.records import NewUsageReport
from mcp_exec_client import AsyncClient, Client, CodeExecutor
from mcp_exec_client.agent import Agent, CodeMode, OfflineProvider
from mcp_exec_client.agent.direct_mode import DirectMode
from mcp_exec_client.errors import ClientMisconfigured, McpExecError
from mcp_exec_client.state.sessions import OpenSession, SessionOptions
from mcp_exec_client.transport import ClientOptions

PARTS = ("sessions", "workspaces", "files", "artifacts", "skills", "records", "conversations")
USAGE = NewUsageReport(id="u", model="m", mode="code", turns=1, input_tokens=1, output_tokens=1, counted="provider")
REQUIRED: dict[str, Any] = {
    "version": 1,
    "rating": 5,
    "content": b"x",
    "archive": b"x",
    "source": b"x",
    "table": "executions",
    "usage": USAGE,
}
"""Values of required arguments that are no names."""
NOT_REQUESTS = ("aclose", "session", "attach", "stream")


class RefusingGateway(ScriptedGateway):
    """Answers every request by an error, and keeps the requests."""

    async def handle(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        self.script.append(problem(404, "not-found"))
        return await super().handle(request)


def find_part(client: AsyncClient, part: str) -> Any:
    if part == "session":
        return client.session("s", keep=True)
    return client if part == "client" else getattr(client, part)


def list_options(method: Any) -> Iterator[str]:
    """Yield the names of all arguments that need not be given."""
    for parameter in inspect.signature(method).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            (declared,) = get_args(parameter.annotation)
            assert is_typeddict(declared)
            yield from sorted(declared.__optional_keys__)
        elif parameter.default is not inspect.Parameter.empty:
            yield parameter.name


def list_cases() -> Iterator[tuple[str, str, str]]:
    client = ScriptedGateway([]).client()
    for part in ("client", "session", *PARTS):
        for name, method in inspect.getmembers(type(find_part(client, part)), inspect.isfunction):
            if not name.startswith("_") and name not in NOT_REQUESTS:
                for option in list_options(method):
                    yield part, name, option


CASES = list(list_cases())


def fill(method: Any, folder: Path) -> dict[str, Any]:
    """Return values of all required arguments."""
    needed = [
        each.name
        for each in inspect.signature(method).parameters.values()
        if each.name != "self"
        and each.default is inspect.Parameter.empty
        and each.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    (folder / "scripts").mkdir(exist_ok=True)
    for name in ("SKILL.md", "scripts/run.py"):
        (folder / name).write_text("x")
    path = "SKILL.md" if method.__qualname__.startswith("Files.") else str(folder / "SKILL.md")
    paths = {"folder": folder, "target": folder / "new", "path": path}
    return {name: paths.get(name, REQUIRED.get(name, "n")) for name in needed}


async def send(part: str, name: str, folder: Path, /, **options: Any) -> tuple[str, str, bytes, str | None]:
    """Return the first request of a method: method, address, body and condition."""
    gateway = RefusingGateway([])
    method = getattr(find_part(gateway.client(), part), name)
    used = method(**{**fill(method, folder), **options})
    try:
        if hasattr(used, "__anext__"):
            await anext(used)
        else:
            await used
    except McpExecError:
        pass
    first = gateway.requests[0]
    return first.method, str(first.url), first.content, first.headers.get("If-Match")


def test_the_methods_have_many_options() -> None:
    assert len(CASES) > 80
    assert {part for part, _, _ in CASES} == {"client", "session", *PARTS} - {"records"}


@pytest.mark.parametrize(("part", "name", "option"), CASES, ids=[".".join(case) for case in CASES])
async def test_none_sends_what_no_argument_sends(part: str, name: str, option: str, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    assert await send(part, name, tmp_path, **{option: None}) == await send(part, name, tmp_path)


async def test_none_as_a_positional_argument_is_not_given_either() -> None:
    gateway = RefusingGateway([])
    for query in ((), (None,)):
        with pytest.raises(McpExecError):
            await gateway.client().search_tools(*query)
    assert gateway.sent[0] == gateway.sent[1]


async def test_none_within_an_option_is_not_given_either() -> None:
    gateway = scripted(execution())
    workspace: Any = {"name": "w", "mode": None}
    await gateway.client().run("1", workspace=workspace)
    assert gateway.requests[0].content == b'{"code":"1","workspace":{"name":"w"}}'


@pytest.mark.parametrize("option", sorted(SessionOptions.__optional_keys__))
async def test_a_session_whose_options_are_none_is_one_without_options(option: str) -> None:
    gateway = scripted(execution())
    options: Any = {option: None}
    session: OpenSession = gateway.client().session("s", **options)
    async with session:
        await session.run("1")
    assert [request.url.path for request in gateway.requests] == ["/v1/executions"]


@pytest.mark.parametrize("option", sorted(ClientOptions.__optional_keys__))
def test_a_client_whose_options_are_none_has_the_defaults(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_EXEC_GATEWAY", URL)
    monkeypatch.setenv("MCP_EXEC_API_KEY", "k")
    options: Any = {option: None}
    made, plain = AsyncClient(None, **options), AsyncClient()
    for name in ("url", "timeout_seconds", "retries"):
        assert getattr(made.transport, name) == getattr(plain.transport, name)
    assert made.transport.read_key() == "k"
    Client(**options).close()


@pytest.mark.parametrize("kind", [CodeExecutor, CodeMode, DirectMode])
def test_executors_and_modes_take_none_for_every_option(kind: Any) -> None:
    for option in list_options(kind.__init__):
        kind(**{"client": ScriptedGateway([]).client(), option: None})


def test_agents_take_none_for_every_option() -> None:
    for option in list_options(Agent.__init__):
        options: Any = {option: None}
        agent = Agent(ScriptedGateway([]).client(), OfflineProvider(), **options)
        assert agent.conversation.startswith("agent-")


TEXTS = {
    "run": lambda client: client.run("1", tools="expenses.*"),
    "submit": lambda client: client.submit("1", skills="expenses.*"),
    "session": lambda client: client.session("s").run("1", tools="expenses.*"),
    "skill": lambda client: client.skills.run("s", tools="expenses.*"),
    "tools of a skill": lambda client: client.skills.save("s", "d", code="1", tools="expenses.*"),
    "tags of a skill": lambda client: client.skills.save("s", "d", code="1", tags="expenses.*"),
    "sync": lambda client: client.files.sync("w", "folder", exclude="expenses.*"),
    "pull": lambda client: client.files.pull("w", "folder", exclude="expenses.*"),
    "executor": lambda client: CodeExecutor(client, tools="expenses.*"),
    "code mode": lambda client: CodeMode(client, tools="expenses.*"),
    "direct mode": lambda client: DirectMode(client, tools="expenses.*"),
    "agent": lambda client: Agent(client, OfflineProvider(), tools="expenses.*"),
}


@pytest.mark.parametrize("use", TEXTS.values(), ids=TEXTS)
async def test_one_text_in_place_of_a_list_is_refused_with_the_list_to_write(use: Any) -> None:
    with pytest.raises(
        TypeError, match=r"(tools|skills|tags|exclude) is a list of texts; write \w+=\['expenses\.\*'\]"
    ):
        await use(ScriptedGateway([]).client())


MAPPINGS = {
    "labels": lambda client: client.run("1", labels="team=a"),
    "context": lambda client: client.run("1", context=[1]),
    "arguments": lambda client: client.skills.run("s", "value"),
}


@pytest.mark.parametrize(("name", "use"), MAPPINGS.items(), ids=MAPPINGS)
async def test_what_is_no_mapping_is_refused(name: str, use: Any) -> None:
    with pytest.raises(TypeError, match=f"{name} is a dict of names and values, not (str|list)$"):
        await use(ScriptedGateway([]).client())


KINDS = {
    "timeout_seconds is a number, not str": [
        lambda client: client.run("1", timeout_seconds="60"),
        lambda client: client.skills.run("s", timeout_seconds="60"),
        lambda client: client.session("s").run("1", timeout_seconds="60"),
    ],
    "wait_seconds is a number, not str": [
        lambda client: client.run("1", wait_seconds="60"),
        lambda client: client.wait("n", wait_seconds="60"),
    ],
    "limit is a number, not str": [lambda client: client.pending_approvals(limit="5")],
    "max_bytes is a number, not str": [lambda client: client.files.read("w", "a", max_bytes="5")],
    "since is a date, not str": [lambda client: client.usage(since="2026-01-01")],
    "name is a text, not NoneType": [lambda client: client.get(None), lambda client: client.cancel(None)],
    "name is a text, not int": [lambda client: client.wait(7)],
    "code is a text, not NoneType": [lambda client: client.run(None)],
    "code is a text, not bytes": [lambda client: client.submit(b"1")],
    "content is bytes, a text or a path, not NoneType": [lambda client: client.files.write("w", "a", None)],
    "content is bytes, a text or a path, not dict": [lambda client: client.files.write("w", "a", {"a": 1})],
}
MISTAKEN = [(words, use) for words, uses in KINDS.items() for use in uses]


@pytest.mark.parametrize(("words", "use"), MISTAKEN, ids=[words for words, _ in MISTAKEN])
async def test_an_argument_of_another_kind_is_refused_by_its_name(words: str, use: Any) -> None:
    with pytest.raises(TypeError, match=rf"\w+\.\w+\(\): {words}$"):
        await use(ScriptedGateway([]).client())


async def test_numbers_and_dates_of_other_classes_are_taken() -> None:
    class Seconds(int):
        pass

    gateway = scripted(execution())
    minute: Any = fractions.Fraction(60)
    await gateway.client().run("1", timeout_seconds=Seconds(5), wait_seconds=minute)
    assert b'"timeoutSeconds":5' in gateway.requests[0].content


@pytest.mark.parametrize("kind", [list, tuple, set, iter])
async def test_patterns_may_be_any_collection(kind: Any) -> None:
    gateway = scripted(execution())
    await gateway.client().run("1", tools=kind(["a.*"]))
    assert gateway.requests[0].content == b'{"code":"1","tools":["a.*"]}'


@pytest.mark.parametrize("kind", [AsyncClient, Client])
def test_an_empty_key_or_address_is_never_replaced_by_that_of_the_environment(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_EXEC_GATEWAY", URL)
    monkeypatch.setenv("MCP_EXEC_API_KEY", "secret")
    with pytest.raises(ClientMisconfigured, match=r"api_key is empty; without it, \$MCP_EXEC_API_KEY is used"):
        kind(api_key="")
    with pytest.raises(ClientMisconfigured, match="address"):
        kind("")


async def test_a_search_names_the_language_of_the_code_unless_it_is_the_default() -> None:
    gateway = RefusingGateway([])
    for options in ({}, {"language": "python"}, {"language": "typescript"}):
        with pytest.raises(McpExecError):
            await gateway.client().search_tools("issues", **options)
    assert [request.url.params.get("language") for request in gateway.requests] == [None, None, "typescript"]
