"""Options and addresses that are nearly right: the error says what to write instead."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.scripted_gateway import URL, ScriptedGateway

from mcp_exec_client import AsyncClient, Client, CodeExecutor
from mcp_exec_client.agent import Agent, OfflineProvider
from mcp_exec_client.errors import ClientMisconfigured

Call = Callable[[Any], Any]
SUGGESTED: dict[str, tuple[Call, str]] = {
    "run": (lambda client: client.run("1", timeout=3), "timeout_seconds"),
    "wait": (lambda client: client.run("1", wait=3), "wait_seconds"),
    "ttl": (lambda client: client.submit("1", ttl=3), "ttl_seconds"),
    "spelling": (lambda client: client.submit("1", idempotencyKey="a"), "idempotency_key"),
    "get": (lambda client: client.get("e1", code=True), "include_code"),
    "list": (lambda client: client.list(labels="a=b"), "label_selector"),
    "stream": (lambda client: client.stream("e1", event_id="1.0"), "last_event_id"),
    "session": (lambda client: client.session(idle_timeout=3), "idle_timeout_seconds"),
    "sessions": (lambda client: client.sessions.create("s", maxAge=3), "max_age_seconds"),
    "files": (lambda client: client.files.write("w", "a", b"", must_new=True), "must_be_new"),
    "workspaces": (lambda client: client.workspaces.list(users="a"), "user"),
    "records": (lambda client: client.records.read(tables="calls"), "table"),
    "conversations": (lambda client: client.conversations.assign("r", units="u"), "unit"),
    "artifacts": (lambda client: client.artifacts.list("e1", link=3), "link_seconds"),
    "skills": (lambda client: client.skills.run("s", waits=3), "wait_seconds"),
}


@pytest.mark.parametrize(("use", "meant"), SUGGESTED.values(), ids=SUGGESTED)
async def test_an_unknown_option_is_answered_by_the_one_that_is_meant(use: Call, meant: str) -> None:
    with pytest.raises(TypeError, match=f"unknown option .*; did you mean {meant}\\? The options are "):
        await use(ScriptedGateway([]).client())
    client = Client(URL, api_key="k")
    with pytest.raises(TypeError, match=f"did you mean {meant}\\?"):
        use(client)
    client.close()


def test_constructors_suggest_options_too() -> None:
    client: Any = ScriptedGateway([]).client()
    for create, meant in (
        (lambda: AsyncClient(URL, key="k"), "api_key"),  # type: ignore[call-arg]
        (lambda: Client(URL, timeout=3), "timeout_seconds"),  # type: ignore[call-arg]
        (lambda: CodeExecutor(client, tool=["a.*"]), "tools"),  # type: ignore[call-arg]
        (lambda: Agent(client, OfflineProvider(), limit=None), "limits"),  # type: ignore[call-arg]
    ):
        with pytest.raises(TypeError, match=f"did you mean {meant}\\?"):
            create()


async def test_an_option_unlike_all_others_is_answered_by_all_there_are() -> None:
    with pytest.raises(TypeError, match="unknown option 'zzz'; the options are approval_timeout_seconds, code, con"):
        await AsyncClient(URL, api_key="k").run("1", zzz=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "path", ["/v1", "/v1/", "/mcp", "/docs", "/v1/executions", "/api/v1", "/base/v1", "/healthz", "/v1/executions/e1"]
)
def test_an_address_with_a_path_of_the_gateway_is_refused_with_the_right_one(path: str) -> None:
    base, given = (URL + "/base", path.removeprefix("/base")) if path.startswith("/base") else (URL, path)
    with pytest.raises(ClientMisconfigured) as error:
        AsyncClient(URL + path, api_key="k")
    assert str(error.value) == f"the gateway's address is given without {given.rstrip('/')}: {base}"


@pytest.mark.parametrize("path", ["", "/", "/base", "/v1beta", "/mcp-exec"])
def test_other_paths_are_part_of_the_address(path: str) -> None:
    assert AsyncClient(URL + path, api_key="k").transport.url == (URL + path).rstrip("/")
