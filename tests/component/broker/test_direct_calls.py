"""Direct calls: those that the gateway makes for a caller, without an execution, at the control port."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from time import time
from typing import Any

import pytest
from tests.component.broker.conftest import SIGNER, World, grant, running, secret
from tests.component.broker.hostile import HostileServer, result
from tests.component.broker.servers import Toolbox, serving, toolbox
from tests.support.constants import DEADLINE
from tests.support.until import until

from mcp_exec_api.sandbox_pool import PoolTools
from mcp_exec_common.broker.grants import ApprovedCall, DirectGrant, GrantSigner
from mcp_exec_common.sandbox_keys import SandboxKeys

Object = dict[str, Any]

IMAGE: Object = {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png", "annotations": {"priority": 1.0}}
LINK: Object = {"type": "resource_link", "name": "log", "uri": "file:///log"}
SOUND: Object = {"type": "audio", "data": "aGVsbG8=", "mimeType": "audio/wav"}
FILE: Object = {"type": "resource", "resource": {"uri": "file:///a", "mimeType": "text/plain", "text": "a"}}


def direct_grant(signer: GrantSigner = SIGNER, **changes: Any) -> str:
    """Return the grant token of a caller."""
    given: Object = {
        "namespace": "agents",
        "pool": "default",
        "caller": "team-a",
        "tools": ["*.*"],
        "pool_tools": PoolTools(),
        "expires": int(time()) + 60,
    }
    return signer.sign(DirectGrant(**(given | changes)))


@dataclass
class Gateway:
    """Sends direct calls as the gateway does."""

    world: World

    async def send(self, body: Object | bytes, *, token: str | None = None, url: str = "") -> tuple[int, str]:
        """Send a request; return the status and the text of the response."""
        headers = {"Authorization": f"Bearer {token or direct_grant()}"}
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with (
            asyncio.timeout(DEADLINE),
            self.world.session.post(
                f"{url or self.world.control}/v1/direct/calls", data=data, headers=headers
            ) as response,
        ):
            return response.status, await response.text()

    async def call(self, tool: str, *, token: str | None = None, **arguments: Any) -> Object:
        """Call a tool and return the line of the answer."""
        status, text = await self.send({"id": "1", "tool": tool, "arguments": arguments}, token=token)
        assert status == 200, text
        line: Object = json.loads(text)
        return line

    async def read_audit(self, **filters: str) -> list[Object]:
        """Return audit records, newest first."""
        query = "&".join(f"{name}={value}" for name, value in ({"namespace": "agents"} | filters).items())
        _, page = await self.world.ask("GET", f"/v1/audit?{query}")
        items: list[Object] = page["items"]
        return items


@pytest.fixture
def gateway(world: World) -> Gateway:
    return Gateway(world)


@pytest.fixture
async def evil(world: World) -> AsyncIterator[HostileServer]:
    async with HostileServer().running() as server:
        world.add("evil", url=server.url)
        await world.listed("evil")
        yield server


def answer(evil: HostileServer, value: Any) -> None:
    """Let the hostile server answer each call of `act` with this result."""

    async def reply(request: Object, writer: asyncio.StreamWriter) -> None:
        writer.write(result(request, value))

    evil.replies["act"] = reply


async def test_a_direct_call_returns_the_servers_result_as_it_is_and_is_audited(gateway: Gateway, box: Toolbox) -> None:
    token = direct_grant(conversation="chat-7", user="u-1")
    line = await gateway.call("box.add", token=token, a=1, b=2)
    assert line["tool"] == "box.add"
    assert line["result"] == {"content": [{"type": "text", "text": "3"}], "structuredContent": {"result": 3}}
    failed = await gateway.call("box.fail", token=token)
    assert failed["result"]["isError"] is True
    assert "it was to be expected" in failed["result"]["content"][0]["text"]
    await until(lambda: gateway.world.broker.pipeline.active_calls == 0)
    fail, add = await gateway.read_audit(source="direct")
    assert {name: add[name] for name in ("caller", "user", "conversation", "pool", "execution", "uid", "outcome")} == {
        "caller": "team-a",
        "user": "u-1",
        "conversation": "chat-7",
        "pool": "default",
        "execution": "",
        "uid": "",
        "outcome": "ok",
    }
    assert (add["server"], add["tool"], add["decision"], add["calls"]) == ("box", "add", "Allow", 1)
    assert json.loads(add["arguments"]) == {"a": 1, "b": 2}
    assert (fail["outcome"], "it was to be expected" in fail["error"]) == ("error", True)
    await gateway.world.call("box.add", a=1, b=2)
    assert [record["execution"] for record in await gateway.read_audit(source="code")] == ["exec-1"]
    metrics = (await gateway.world.ask("GET", "/metrics"))[1]
    assert 'mcp_exec_broker_calls_total{mode="direct",outcome="error",server="agents/box"} 1.0' in metrics


async def test_all_kinds_of_content_pass_unchanged(gateway: Gateway, evil: HostileServer) -> None:
    content = [{"type": "text", "text": "an image:"}, IMAGE, SOUND, FILE, LINK]
    answer(evil, {"content": content, "structuredContent": {"rows": [1]}, "_meta": {"other": 1}, "more": 1})
    line = await gateway.call("evil.act")
    assert line["result"] == {"content": content, "structuredContent": {"rows": [1]}}


NOT_FINITE = "JSON has no NaN and no infinity: {} in structuredContent became null."


@pytest.mark.parametrize(
    ("structured", "kept", "count"),
    [
        ({"a": float("nan"), "b": float("inf"), "c": 1.5}, {"a": None, "b": None, "c": 1.5}, 2),
        ({"rows": [[{"x": float("-inf")}], [0.0, float("nan")]]}, {"rows": [[{"x": None}], [0.0, None]]}, 2),
        (float("nan"), None, 1),
        ({"NaN": "Infinity"}, {"NaN": "Infinity"}, 0),
    ],
)
@pytest.mark.parametrize("is_error", [False, True])
async def test_a_number_that_json_does_not_have_is_null_with_a_note(
    gateway: Gateway, evil: HostileServer, structured: Any, kept: Any, count: int, is_error: bool
) -> None:
    answer(evil, {"content": [], "structuredContent": structured, "isError": is_error})
    line = await gateway.call("evil.act")
    assert line["result"]["structuredContent"] == kept
    notes = [note for note in line.get("notes", []) if note.startswith("JSON")]
    assert notes == ([NOT_FINITE.format(count)] if count else []), line


async def test_a_null_that_was_nan_keeps_to_the_schema_or_is_an_error(gateway: Gateway, evil: HostileServer) -> None:
    nullable: Object = {"type": "object", "properties": {"a": {"type": ["number", "null"]}}}
    number: Object = {"type": "object", "properties": {"a": {"type": "number"}}}
    evil.tools = [
        {"name": name, "inputSchema": {"type": "object"}, "outputSchema": schema}
        for name, schema in (("nullable", nullable), ("number", number))
    ]
    gateway.world.broker.catalogs.refresh(("agents", "evil"))
    await until(lambda: gateway.world.status("evil").get("tools") == 2)

    async def reply(request: Object, writer: asyncio.StreamWriter) -> None:
        writer.write(result(request, {"content": [], "structuredContent": {"a": float("nan")}}))

    evil.replies |= {"nullable": reply, "number": reply}
    line = await gateway.call("evil.nullable")
    assert (line["result"]["structuredContent"], line["notes"]) == ({"a": None}, [NOT_FINITE.format(1)])
    assert (await gateway.call("evil.number"))["reason"] == "UnexpectedResult"


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ({"content": []}, "the tool failed without a message"),
        ({"content": [{"type": "text", "text": " \n"}]}, "the tool failed without a message"),
        ({"content": [], "structuredContent": {"code": 5}}, '{"code": 5}'),
    ],
)
async def test_an_error_without_words_says_that_the_tool_failed(
    gateway: Gateway, evil: HostileServer, sent: Object, said: str
) -> None:
    answer(evil, {**sent, "isError": True})
    line = await gateway.call("evil.act")
    assert line["result"]["content"] == [{"type": "text", "text": said}]
    assert line["result"]["isError"] is True


async def test_only_a_grant_of_the_gateway_makes_direct_calls(gateway: Gateway, box: Toolbox) -> None:
    tokens = {
        "of a sandbox": grant(),
        "a service token": SIGNER.sign_service_token("gateway"),
        "forged": direct_grant(GrantSigner(keys=SandboxKeys(b"a key of the attacker"))),
        "expired": direct_grant(expires=int(time()) - 1),
        "valid for too long": direct_grant(expires=int(time()) + 3600),
        "of a namespace that is not served": direct_grant(namespace="other"),
        "too large": "x" * 70_000,
    }
    for kind, token in tokens.items():
        status, text = await gateway.send({"id": "1", "tool": "box.add", "arguments": {"a": 1, "b": 2}}, token=token)
        assert status == 401, (kind, text)
    assert box.calls == []


async def test_a_grant_of_direct_calls_opens_nothing_else(gateway: Gateway, box: Toolbox) -> None:
    world, token = gateway.world, direct_grant()
    headers = {"Authorization": f"Bearer {token}"}
    body = {"id": "1", "tool": "box.add", "arguments": {"a": 1, "b": 2}}
    async with world.session.post(f"{world.url}/v1/calls", json=body, headers=headers) as response:
        assert response.status == 401  # the port of the sandboxes
    assert (await gateway.send(body, url=world.url))[0] == 404
    assert (await world.ask("GET", "/v1/audit", service_token=token))[0] == 401
    assert (await world.ask("GET", "/v1/direct/calls"))[0] == 405
    assert box.calls == []


async def test_tools_of_key_pool_and_server_bound_direct_calls(gateway: Gateway, box: Toolbox) -> None:
    gateway.world.add("box", url=box.url, deny=["echo"], policy={"rules": [{"tools": ["big"], "action": "Deny"}]})
    key = await gateway.call("box.add", token=direct_grant(tools=["box.fail"]), a=1, b=2)
    pool = await gateway.call("box.add", token=direct_grant(pool_tools=PoolTools(deny=["box.a*"])), a=1, b=2)
    foreign = await gateway.call("box.add", token=direct_grant(tools=["github.*"]), a=1, b=2)
    assert (key["reason"], key["message"]) == ("NotAllowed", "the caller's tools do not have box.add")
    assert (pool["reason"], pool["message"]) == ("NotAllowed", "the pool denies box.add")
    assert (foreign["reason"], foreign["message"]) == ("NotAllowed", "the caller's tools have none of box")

    async def reason(tool: str, **arguments: Any) -> str | None:
        answer: str | None = (await gateway.call(tool, **arguments)).get("reason")
        return answer

    async with asyncio.timeout(DEADLINE):
        while await reason("box.echo", value=1) != "NotAllowed":
            pass
    assert await reason("box.big", size=1) == "DeniedByPolicy"
    assert "add" not in box.calls
    assert {record["outcome"] for record in await gateway.read_audit(source="direct", tool="box.add")} == {"denied"}


async def test_a_caller_reaches_no_server_of_another_namespace(api: Any, tmp_path: Any) -> None:
    async with running(api, tmp_path, namespaces=("agents", "other")) as world, serving(toolbox()) as box:
        world.add("box", url=box.url)
        await world.listed("box")
        line = await Gateway(world).call("box.add", token=direct_grant(namespace="other"), a=1, b=2)
        assert (line["reason"], line["message"]) == ("NoSuchServer", "there is no server 'box'")
        assert box.calls == []


async def test_wrong_and_huge_arguments_never_travel(gateway: Gateway, box: Toolbox) -> None:
    gateway.world.add("box", url=box.url, limits={"argumentBytes": 20_000})
    await until(lambda: gateway.world.status("box").get("observedGeneration") == 2)
    wrong = await gateway.call("box.add", a="one", b=2)
    large = await gateway.call("box.echo", value="x" * 30_000)
    hidden = await gateway.call("box.echo", value="ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8")
    assert (wrong["reason"], large["reason"], hidden["reason"]) == (
        "InvalidArguments",
        "InvalidArguments",
        "SecretFound",
    )
    assert "allowed are 20000" in large["message"]
    nested = b'{"id":"1","tool":"box.echo","arguments":{"value":' + b"[" * 200 + b"]" * 200 + b"}}"
    assert (await gateway.send(nested))[0] == 400
    assert (await gateway.send({"id": "1", "tool": "box.add", "arguments": {}, "caller": "root"}))[0] == 400
    assert box.calls == []


async def test_a_caller_has_a_rate_of_its_own(gateway: Gateway, box: Toolbox) -> None:
    token = direct_grant(calls_per_minute=2)
    lines = [await gateway.call("box.add", token=token, a=1, b=2) for _ in range(3)]
    assert [line.get("reason") for line in lines] == [None, None, "RateLimited"]
    assert "may make 2 direct calls in a minute" in lines[2]["message"]
    assert "result" in await gateway.call("box.add", token=direct_grant(caller="team-b"), a=1, b=2)
    assert box.calls == ["add"] * 3


async def test_a_client_that_goes_away_cancels_its_direct_call(gateway: Gateway, box: Toolbox) -> None:
    call = asyncio.create_task(gateway.call("box.hang"))
    await asyncio.wait_for(box.entered.wait(), DEADLINE)
    call.cancel()
    await asyncio.wait_for(box.cancelled.wait(), DEADLINE)
    await until(lambda: gateway.world.broker.pipeline.active_calls == 0)
    record = (await gateway.read_audit(source="direct"))[0]
    assert (record["outcome"], record["error"]) == ("cancelled", "the caller cancelled the call")


async def test_a_call_that_needs_an_approval_is_made_only_with_consent_to_its_arguments(
    gateway: Gateway, box: Toolbox
) -> None:
    asked = await gateway.call("box.destroy", name="db")
    approval = asked["approval"]
    assert (asked["kind"], asked["reason"]) == ("ToolDenied", "ApprovalRequired")
    assert (approval["tool"], json.loads(approval["arguments"])) == ("box.destroy", {"name": "db"})
    consent = ApprovedCall(tool="box.destroy", arguments_digest=approval["argumentsDigest"], by="team-a")
    token = direct_grant(approved=consent)
    other = await gateway.call("box.destroy", token=token, name="other-db")
    assert other["reason"] == "ApprovalRequired"
    assert box.calls == []
    assert "result" in await gateway.call("box.destroy", token=token, name="db")
    assert box.calls == ["destroy db"]
    await until(lambda: gateway.world.broker.pipeline.active_calls == 0)
    made, _, denied = await gateway.read_audit(tool="box.destroy")
    assert (made["decision"], made["approvedBy"], made["outcome"]) == ("Approve", "team-a", "ok")
    assert (denied["decision"], denied["approvedBy"], denied["outcome"]) == ("Approve", None, "denied")


async def test_users_have_their_own_credentials_in_direct_calls(world: World, gateway: Gateway) -> None:
    world.api.put(
        "/api/v1/namespaces/agents/secrets", secret("users", **{"u-1": "token-of-user-1", "u-2": "token-of-user-2"})
    )
    async with serving(toolbox()) as box:
        world.add("box", url=box.url, userHeaders=[{"name": "x-user", "secretName": "users"}])
        await world.listed("box")
        line = await gateway.call("box.add", token=direct_grant(user="u-2"), a=1, b=2)
        assert "result" in line, line
        assert box.requests[-1]["headers"]["x-user"] == "token-of-user-2"
        nobody = await gateway.call("box.add", token=direct_grant(user="u-3"), a=1, b=2)
        assert nobody["reason"] == "NoUserCredentials"


async def test_hostile_results_are_bounded_and_free_of_credentials(world: World, gateway: Gateway) -> None:
    world.api.put("/api/v1/namespaces/agents/secrets", secret("token", value="hunter2-hunter2"))
    async with HostileServer().running() as evil:
        world.add(
            "evil",
            url=evil.url,
            headers=[{"name": "x-token", "secretKeyRef": {"name": "token", "key": "value"}}],
            limits={"resultBytes": 4096},
        )
        await world.listed("evil")
        echo = {"type": "text", "text": "you sent hunter2-hunter2"}
        answer(evil, {"content": [echo, IMAGE], "isError": True})
        failed = (await gateway.call("evil.act"))["result"]
        assert "hunter2" not in json.dumps(failed)
        assert (failed["isError"], failed["content"][1]) == (True, IMAGE)
        answer(evil, {"content": [{"type": "text", "text": "x" * 5000}]})
        assert (await gateway.call("evil.act"))["reason"] == "ResultTooLarge"
        for bad in ({"content": 5}, {"content": [], "isError": "perhaps"}, [1]):
            answer(evil, bad)
            assert (await gateway.call("evil.act"))["kind"] == "ToolProtocolError"
        answer(evil, {"content": [], "isError": "yes"})
        assert (await gateway.call("evil.act"))["result"]["isError"] is True


async def test_repeated_denials_of_a_caller_are_counted_in_one_record(gateway: Gateway, box: Toolbox) -> None:
    token = direct_grant(tools=["github.*"], calls_per_minute=1000)
    for number in (53, 52):
        await asyncio.gather(*(gateway.call("box.add", token=token, a=1, b=2) for _ in range(number)))
    await gateway.world.broker.denials.write_counts()
    records = await gateway.read_audit(source="direct", limit="200")
    assert (len(records), records[0]["calls"], records[0]["caller"]) == (101, 5, "team-a")


async def test_one_caller_has_a_bounded_number_of_requests_in_progress(gateway: Gateway, box: Toolbox) -> None:
    world = gateway.world
    calls = [asyncio.create_task(gateway.call("box.hang")) for _ in range(64)]
    await until(lambda: world.broker.pipeline.active_calls == 64)
    status, text = await gateway.send({"id": "1", "tool": "box.add", "arguments": {"a": 1, "b": 2}})
    assert (status, text) == (429, "64 calls of the caller are in progress, which is the limit\n")
    other = await gateway.call("box.fail", token=direct_grant(caller="team-b"))
    assert other["result"]["isError"] is True
    box.release.set()
    assert len(await asyncio.gather(*calls)) == 64


async def test_personal_data_has_tokens_of_one_conversation(gateway: Gateway, evil: HostileServer) -> None:
    gateway.world.add("evil", url=evil.url, scan={"personalInResults": "Tokenize"})
    answer(evil, {"content": [{"type": "text", "text": "write to jane@example.com"}]})
    one, two = direct_grant(conversation="one"), direct_grant(conversation="two")

    async def find_token() -> str:
        return str((await gateway.call("evil.act", token=one))["result"]["content"][0]["text"])

    async with asyncio.timeout(DEADLINE):
        while "jane" in (text := await find_token()):
            pass
    token = text.removeprefix("write to ")
    assert token.startswith("[EMAIL_1_")
    await gateway.call("evil.act", token=one, to=token)
    call = [message for message in evil.messages if message.get("method") == "tools/call"][-1]
    assert call["params"]["arguments"] == {"to": "jane@example.com"}
    assert (await gateway.call("evil.act", token=two, to=token))["reason"] == "UnknownToken"
