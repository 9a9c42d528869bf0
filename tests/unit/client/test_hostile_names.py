"""Names and paths of callers in the paths of requests: none leads to another object, whatever it is."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
from tests.support.scripted_gateway import ScriptedGateway
from tests.unit.client.test_arguments import NOT_REQUESTS, PARTS, RefusingGateway, fill, find_part

from mcp_exec_client import errors
from mcp_exec_client.cli.backends.backend import Decision
from mcp_exec_client.cli.backends.catalog_sources import fetch_from_gateway
from mcp_exec_client.cli.backends.cluster import ClusterBackend
from mcp_exec_client.cli.backends.gateway import GatewayBackend
from mcp_exec_client.cli.exit_codes import CommandError
from mcp_exec_common.kube.client import KubeClient
from mcp_exec_common.kube.credentials import KubeCredentials
from mcp_exec_common.kube.errors import ApiError

HARMLESS = "n0n"
HOSTILE = (
    "",
    ".",
    "..",
    "/",
    "/v1/stats",
    "../../other",
    "a/../../../other",
    "a/..",
    "./a",
    "a//b",
    "..\\..\\other",
    "%2e%2e",
    "%2E.",
    "..%2fother",
    "..;/other",
    "?a=1",
    "#a",
    "\ud800",
    "a\nb",
)
REFUSED = (errors.McpExecError, CommandError, ApiError, TypeError, ValueError, OSError)


def list_texts(method: Any) -> Iterator[str]:
    """Yield the names of the arguments that are texts and no local paths, so that they may be a part of an address."""
    for parameter in inspect.signature(method).parameters.values():
        kinds = str(parameter.annotation)
        is_text = re.search("str|Literal", kinds) and not re.search("Path|Sequence|Collection|Mapping", kinds)
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD and is_text and parameter.name != "if_match":
            yield parameter.name


def list_cases() -> Iterator[tuple[str, str, str]]:
    client = ScriptedGateway([]).client()
    for part in ("client", "session", *PARTS):
        for name, method in inspect.getmembers(type(find_part(client, part)), inspect.isfunction):
            if not name.startswith("_") and name not in {*NOT_REQUESTS} - {"stream"}:
                yield from ((part, name, text) for text in list_texts(method))


CASES = list(list_cases())


def read_paths(gateway: ScriptedGateway) -> set[str]:
    """Return the method and path of each request, as it is sent."""
    return {f"{each.method} {each.url.raw_path.decode().partition('?')[0]}" for each in gateway.requests}


async def use(method: Any, **arguments: Any) -> None:
    """Call a method up to its first answer, which is an error."""
    try:
        used = method(**arguments)
        if hasattr(used, "__anext__"):
            await anext(used)
        else:
            await used
    except REFUSED:
        pass


def assert_harmless(sent: set[str], expected: set[str], name: str) -> None:
    """Fail if a request with a hostile name has another path than the same one with a harmless name."""
    encoded = [quote(name, safe=safe, errors="replace") for safe in ("", "/")]
    assert sent <= {path.replace(HARMLESS, each) for path in expected for each in encoded}
    for path in sent:
        assert not {"", ".", ".."} & set(path.partition(" /")[2].split("/"))


def test_the_methods_take_many_texts() -> None:
    assert len(CASES) > 80
    assert {part for part, _, _ in CASES} == {"client", "session", *PARTS}


@pytest.mark.parametrize(("part", "name", "text"), CASES, ids=[".".join(case) for case in CASES])
async def test_no_argument_of_the_client_leads_to_another_path(part: str, name: str, text: str, tmp_path: Path) -> None:
    async def send(value: str) -> set[str]:
        gateway = RefusingGateway([])
        method = getattr(find_part(gateway.client(), part), name)
        await use(method, **{**fill(method, tmp_path), text: value})
        return read_paths(gateway)

    expected = await send(HARMLESS)
    assert expected
    for value in HOSTILE:
        assert_harmless(await send(value), expected, value)


@pytest.mark.parametrize("name", HOSTILE)
async def test_no_name_of_a_session_leads_to_another_path(name: str) -> None:
    for method in ("get", "reset", "delete"):
        expected, gateway = RefusingGateway([]), RefusingGateway([])
        await use(getattr(expected.client().session(HARMLESS), method))
        if name:  # without a name, it gets one
            await use(getattr(gateway.client().session(name), method))
        assert_harmless(read_paths(gateway), read_paths(expected), name)


@pytest.mark.parametrize("path", ["..", ".", "", "../../other/files/a", "a/../../../other", "a//b", "/abs", "a\\..\\b"])
async def test_a_path_that_leaves_the_workspace_is_refused_with_the_rule(path: str, tmp_path: Path) -> None:
    gateway = RefusingGateway([])
    files = gateway.client().files
    for call in (
        files.read("w", path),
        files.save("w", path, tmp_path / "x"),
        files.write("w", path, b"x"),
        files.delete("w", path),
    ):
        with pytest.raises(errors.RequestInvalid, match="422 invalid: path: a path ") as caught:
            await call
        assert [each.field for each in caught.value.errors] == ["path"]
    assert gateway.sent == []


def list_backend_cases(backend: type[Any]) -> Iterator[tuple[str, str]]:
    for name, method in inspect.getmembers(backend, inspect.isfunction):
        if not name.startswith("_") and name not in {"submit", "search_tools", "change", "path"}:
            yield from ((name, text) for text in list_texts(method) if text not in {"user", "query", "to", "action"})


def fill_backend(method: Any) -> dict[str, Any]:
    """Return values of all required arguments of a command's operation."""
    values = {"decision": Decision(choice="Deny"), "action": "pause", "user": None}
    return {
        each.name: values.get(each.name, "other")
        for each in inspect.signature(method).parameters.values()
        if each.name != "self" and each.default is inspect.Parameter.empty
    }


GATEWAY_CASES = list(list_backend_cases(GatewayBackend))
CLUSTER_CASES = list(list_backend_cases(ClusterBackend))


@pytest.mark.parametrize(("name", "text"), GATEWAY_CASES)
async def test_no_argument_of_a_command_leads_to_another_path_of_the_gateway(name: str, text: str) -> None:
    async def send(value: str) -> set[str]:
        gateway = RefusingGateway([])
        method = getattr(GatewayBackend(client=gateway.client(), namespace=None), name)
        await use(method, **{**fill_backend(method), text: value})
        return read_paths(gateway)

    expected = await send(HARMLESS)
    assert expected
    for value in HOSTILE:
        assert_harmless(await send(value), expected, value)


class LostSession:
    """Loses every request, and keeps their paths."""

    def __init__(self) -> None:
        self.paths: set[str] = set()

    def request(self, method: str, path: str, **_: Any) -> Any:
        self.paths.add(f"{method} {path}")
        raise aiohttp.ClientError


@pytest.mark.parametrize(("name", "text"), CLUSTER_CASES)
async def test_no_argument_of_a_command_leads_to_another_object_of_the_api_server(name: str, text: str) -> None:
    async def send(value: str) -> set[str]:
        session: Any = LostSession()
        kube = KubeClient(session=session, credentials=KubeCredentials(server="https://k.test"), retry_delays=())
        method = getattr(ClusterBackend(kube=kube, namespace="agents"), name)
        await use(method, **{**fill_backend(method), text: value})
        paths: set[str] = session.paths
        return paths

    expected = await send(HARMLESS)
    assert expected
    for value in HOSTILE:
        named = {path for path in expected if HARMLESS in path and text == "name"}
        assert await send(value) <= expected - named, "a collection or another object"


def test_the_commands_have_operations_with_names() -> None:
    assert len(GATEWAY_CASES) > 10
    assert len(CLUSTER_CASES) > 10


@pytest.mark.parametrize("server", ["", ".", ".."])
async def test_no_name_of_a_server_leads_to_another_list_of_tools(server: str) -> None:
    with pytest.raises(CommandError, match="nothing has the name"):
        await fetch_from_gateway("http://127.0.0.1:1", server, key="k", seconds=1.0)
