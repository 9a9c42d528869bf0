"""Requests of the client: what is sent again and what is not, how long, and which error a caller gets."""

import asyncio
import json
from datetime import UTC, datetime
from decimal import Decimal

import httpx
import pytest
from tests.support.clock import Clock
from tests.support.scripted_gateway import URL, Chunks, execution, problem, scripted

from mcp_exec_api.wire.problems import PROBLEM_TITLES
from mcp_exec_client import errors
from mcp_exec_client.client import AsyncClient
from mcp_exec_client.options import RunOptions, default_wait
from mcp_exec_client.transport import MAX_RESPONSE_BYTES, NO_RETRIES, RetryPolicy

LOST = httpx.ReadError("connection reset")


async def test_a_run_whose_response_was_lost_is_found_again_by_the_same_key_and_body() -> None:
    gateway = scripted(LOST, httpx.RemoteProtocolError("closed"), execution(output={"stdout": "1\n"}))
    run = await gateway.client().run("print(1)", context={"a": [1]}, pool="large", tool_calls=3)
    assert (run.succeeded, run.stdout) == (True, "1\n")
    first, *others = gateway.requests
    assert first.headers["Idempotency-Key"]
    assert [(each.headers["Idempotency-Key"], each.content) for each in others] == [
        (first.headers["Idempotency-Key"], first.content)
    ] * 2
    assert first.url.params["onDisconnect"] == "continue"
    expected = {"code": "print(1)", "context": {"a": [1]}, "poolRef": {"name": "large"}, "limits": {"toolCalls": 3}}
    assert json.loads(first.content) == expected


async def test_two_runs_have_keys_of_their_own_and_a_given_key_is_used() -> None:
    gateway = scripted(execution(), execution(), execution())
    client = gateway.client()
    await client.run("1")
    await client.run("1")
    await client.run("1", idempotency_key="mine")
    first, second, third = (each.headers["Idempotency-Key"] for each in gateway.requests)
    assert first != second
    assert third == "mine"


async def test_a_wait_that_is_longer_than_one_request_goes_on_by_get() -> None:
    gateway = scripted(execution("Pending"), execution("Running"), LOST, execution())
    assert (await gateway.client().run("1")).succeeded
    assert [line.partition("?")[0] for line in gateway.sent] == ["POST /v1/executions", *["GET /v1/executions/e1"] * 3]
    assert [float(each.url.params["wait"]) for each in gateway.requests] == [2, 50, 50, 50]


async def test_a_run_whose_caller_is_cancelled_is_cancelled_also_if_its_name_is_not_known() -> None:
    waiting = asyncio.Event()

    async def wait_forever(_: httpx.Request) -> None:
        waiting.set()
        await asyncio.Event().wait()

    gateway = scripted(wait_forever, execution("Running"), execution("Running"))
    task = asyncio.create_task(gateway.client().run("1"))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    sent = [line.partition("?")[0] for line in gateway.sent]
    assert sent == ["POST /v1/executions", "POST /v1/executions", "DELETE /v1/executions/e1"]
    assert len({each.headers.get("Idempotency-Key") for each in gateway.requests[:2]}) == 1


async def test_retries_do_not_make_a_run_longer_than_its_wait() -> None:
    async def wait_forever(_: float) -> None:
        await asyncio.Event().wait()

    gateway = scripted(LOST, execution("Pending"), execution("Pending"))
    client = gateway.client(timeout_seconds=0.02)
    client.transport.sleep = wait_forever
    with pytest.raises(
        errors.WaitExpired, match=r"no execution has ended within 0\.03 seconds; its cancellation is requested"
    ):
        await client.run("1", wait_seconds=0.01)
    assert [line.partition("?")[0] for line in gateway.sent] == [
        "POST /v1/executions",
        "POST /v1/executions",
        "DELETE /v1/executions/e1",
    ]


@pytest.mark.parametrize(
    ("options", "seconds"), [({}, 900), ({"timeout_seconds": 60}, 900), ({"timeout_seconds": 3600}, 4200)]
)
def test_a_client_waits_for_a_long_run_longer_than_it_may_take(options: RunOptions, seconds: float) -> None:
    assert default_wait(options) == seconds


async def test_the_end_of_a_wait_says_that_the_run_could_not_be_cancelled() -> None:
    gateway = scripted(execution("Running"), problem(403, "forbidden"))
    with pytest.raises(errors.WaitExpired, match="Running; its cancellation could not be requested, so it may go on"):
        await gateway.client().run("1", wait_seconds=0)


@pytest.mark.parametrize("seconds", [-1, float("nan"), -float("inf")])
async def test_a_wait_that_is_none_is_refused_by_its_name(seconds: float) -> None:
    gateway = scripted()
    client = gateway.client()
    for call in (client.run("1", wait_seconds=seconds), client.wait("e1", wait_seconds=seconds)):
        with pytest.raises(ValueError, match="wait_seconds is a number of seconds, 0 or more, and not"):
            await call
    if seconds == seconds:
        with pytest.raises(errors.ClientMisconfigured, match="timeout_seconds"):
            gateway.client(timeout_seconds=seconds)
    assert gateway.sent == []


@pytest.mark.parametrize("limit", [0, -1])
@pytest.mark.parametrize("method", ["list", "audit"])
async def test_a_limit_of_a_list_that_yields_nothing_is_refused_by_its_name(method: str, limit: int) -> None:
    gateway = scripted()
    with pytest.raises(ValueError, match=f"^limit is the most items in all, 1 or more, and not {limit}$"):
        getattr(gateway.client(), method)(limit=limit)
    assert gateway.sent == []


@pytest.mark.parametrize("tag", ["", "junk", "*", "a b-1", "A" * 64])
async def test_a_condition_that_can_never_hold_is_refused(tag: str) -> None:
    gateway = scripted()
    client = gateway.client()
    for call in (
        client.files.write("w", "a", b"1", if_match=tag),
        client.files.delete("w", "a", if_match=tag),
        client.workspaces.restore("w", 1, if_match=tag),
        client.workspaces.load_archive("w", __file__, if_match=tag),
    ):
        with pytest.raises(ValueError, match="if_match is the `etag` of a version"):
            await call
    assert gateway.sent == []


async def test_an_iteration_that_is_awaited_says_how_to_write_it() -> None:
    client = scripted().client()
    for made in (client.files.list("w"), client.list(), client.audit(), client.stream("e1")):
        with pytest.raises(TypeError, match="write `async for each in"):
            await made


async def test_waiting_for_an_execution_does_not_cancel_it() -> None:
    gateway = scripted(execution("Running"))
    with pytest.raises(errors.WaitExpired, match="Running; it goes on"):
        await gateway.client().wait("e1", wait_seconds=0)
    assert len(gateway.sent) == 1


@pytest.mark.parametrize(("status", "kind"), [(429, "rate-limited"), (503, "unavailable"), (502, "http")])
async def test_a_busy_gateway_is_asked_again_after_the_time_that_it_names(status: int, kind: str) -> None:
    gateway = scripted(problem(status, kind, retry_after=7), problem(status, kind), execution())
    assert (await gateway.client().run("1")).succeeded
    assert gateway.delays == [7.1, 0.4]


async def test_retries_end_after_their_number_and_the_last_error_is_raised() -> None:
    gateway = scripted(*[problem(429, "queue-full", "40 wait")] * 6)
    with pytest.raises(errors.PoolQueueFull, match="429 queue-full: 40 wait"):
        await gateway.client().run("1")
    assert gateway.delays == [0.2, 0.4, 0.8, 1.6, 3.2]


async def test_retries_end_when_their_delays_would_take_too_long() -> None:
    gateway = scripted(problem(503, "unavailable", retry_after=50), problem(503, "unavailable", retry_after=50))
    with pytest.raises(errors.Unavailable):
        await gateway.client().get("e1")
    assert gateway.delays == [50.1]


@pytest.mark.parametrize("retry_after", ["soon", "Wed, 21 Oct 2026 07:28:00 GMT", "-1", "9" * 5000, "٣"])
async def test_a_retry_after_that_is_no_number_of_seconds_is_ignored(retry_after: str) -> None:
    headers = [(b"retry-after", retry_after.encode())]
    gateway = scripted(httpx.Response(503, headers=headers), execution())
    await gateway.client().get("e1")
    assert gateway.delays == [0.2]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 413, 415, 422, 500, 307])
async def test_a_request_that_would_fail_again_is_sent_once(status: int) -> None:
    gateway = scripted(problem(status))
    with pytest.raises(errors.GatewayError) as caught:
        await gateway.client().run("1")
    assert (caught.value.status, len(gateway.sent)) == (status, 1)


async def test_a_decision_is_sent_again_only_if_it_cannot_have_arrived() -> None:
    decided = {"id": "a", "tool": "s.t", "arguments": "{}", "state": "Approved"}
    times = {"requestedAt": "2026-11-21T20:00:00Z", "expiresAt": "2026-11-21T20:05:00Z", "newer": 1}
    gateway = scripted(httpx.ConnectError("refused"), problem(429, "rate-limited"), decided | times)
    assert (await gateway.client().approve("e1", "a", comment="ok")).state == "Approved"
    assert json.loads(gateway.requests[-1].content) == {"decision": "Approve", "comment": "ok"}
    for failure, error in [(LOST, errors.GatewayUnreachable), (problem(503, "unavailable"), errors.Unavailable)]:
        gateway = scripted(failure)
        with pytest.raises(error):
            await gateway.client().deny("e1", "a")


def test_jitter_spreads_callers_and_never_shortens_a_retry_after() -> None:
    early, late = RetryPolicy(draw=lambda: 0.0), RetryPolicy(draw=lambda: 1.0)
    assert (early.find_delay(3, waited=0), late.find_delay(3, waited=0)) == (0.4, 0.8)
    assert (early.find_delay(1, waited=0, retry_after=5), late.find_delay(1, waited=0, retry_after=5)) == (5, 5.1)
    assert NO_RETRIES.find_delay(1, waited=0) is None


def test_every_kind_of_problem_of_the_gateway_has_an_error() -> None:
    kinds = {
        "bad-json": (400, errors.RequestInvalid),
        "unauthenticated": (401, errors.Unauthenticated),
        "forbidden": (403, errors.Forbidden),
        "misdirected": (421, errors.RequestInvalid),
        "not-found": (404, errors.NotFound),
        "method-not-allowed": (405, errors.RequestInvalid),
        "not-acceptable": (406, errors.RequestInvalid),
        "request-timeout": (408, errors.RequestInvalid),
        "conflict": (409, errors.Conflict),
        "decided": (409, errors.AlreadyDecided),
        "unfinished": (409, errors.Conflict),
        "deleted": (410, errors.Gone),
        "body-too-large": (413, errors.RequestInvalid),
        "media-type": (415, errors.RequestInvalid),
        "invalid": (422, errors.RequestInvalid),
        "code-refused": (422, errors.CodeRefused),
        "language-not-offered": (422, errors.RequestInvalid),
        "language-not-checked": (422, errors.CodeRefused),
        "refused": (422, errors.RequestInvalid),
        "changed": (409, errors.Conflict),
        "outdated": (412, errors.Outdated),
        "expired": (410, errors.Gone),
        "quota": (413, errors.RequestInvalid),
        "key-reused": (422, errors.Conflict),
        "too-many": (429, errors.TooManyRequests),
        "rate-limited": (429, errors.TooManyRequests),
        "queue-full": (429, errors.PoolQueueFull),
        "stored": (429, errors.TooManyRequests),
        "unavailable": (503, errors.Unavailable),
        "internal": (500, errors.Unavailable),
    }
    assert kinds.keys() == PROBLEM_TITLES.keys()
    assert {kind: errors.find_error_class(kind, status) for kind, (status, _) in kinds.items()} == {
        kind: error for kind, (_, error) in kinds.items()
    }


async def test_an_error_has_the_fields_and_what_is_allowed() -> None:
    allowed = {"field": "timeoutSeconds", "message": "400 is more than the 300 seconds that pool default allows"}
    gateway = scripted(problem(422, errors=[allowed], execution="e9", newer=[1]))
    with pytest.raises(errors.RequestInvalid) as caught:
        await gateway.client().run("1", timeout_seconds=400)
    assert [error.model_dump() for error in caught.value.errors] == [allowed]
    assert (caught.value.kind, caught.value.execution) == ("invalid", "e9")


async def test_a_connection_that_fails_is_named_with_its_address_and_the_reason() -> None:
    refused = httpx.ConnectError("All connection attempts failed")
    refused.__cause__ = ConnectionRefusedError(111, "Connection refused")
    gateway = scripted(refused)
    with pytest.raises(errors.GatewayUnreachable, match=f"GET {URL}/v1/executions/e1: Connection refused"):
        await gateway.client(retries=NO_RETRIES).get("e1")


async def test_an_execution_that_can_no_longer_be_read_is_named_by_the_error() -> None:
    gateway = scripted(execution("Running"), *[LOST] * 20)
    with pytest.raises(errors.GatewayUnreachable, match=r"connection reset; execution e1 goes on$") as caught:
        await gateway.client().run("1")
    assert caught.value.execution == "e1"


async def test_a_run_that_may_have_begun_without_a_name_is_named_by_its_key() -> None:
    gateway = scripted(LOST, *[httpx.ConnectError("refused")] * 5)
    with pytest.raises(errors.GatewayUnreachable) as caught:
        await gateway.client().run("1")
    key = gateway.requests[0].headers["Idempotency-Key"]
    assert str(caught.value).endswith(f"the same call with idempotency_key='{key}' returns its execution")
    with pytest.raises(errors.GatewayUnreachable) as caught:
        await scripted(*[httpx.ConnectError("refused")] * 6).client().run("1")
    assert str(caught.value).endswith("/v1/executions: refused")


async def test_a_proxy_that_never_reached_a_gateway_is_given_up_within_seconds() -> None:
    gateway = scripted(*[httpx.Response(503, text="<html>no upstream</html>")] * 6)
    with pytest.raises(errors.Unavailable):
        await gateway.client().get("e1")
    assert len(gateway.delays) == 5


async def test_a_gateway_that_is_back_and_starts_gets_all_its_attempts() -> None:
    starting = [problem(503, "unavailable")] * 5
    gateway = scripted(execution("Running"), *[httpx.ConnectError("refused")] * 7, *starting, execution())
    assert (await gateway.client(retries=RetryPolicy(draw=lambda: 0.0)).run("1")).succeeded


async def test_attempts_that_take_long_count_while_a_gateway_is_away() -> None:
    gateway = scripted(execution("Running"), *[httpx.ReadTimeout("")] * 20)
    client, clock = gateway.client(), Clock()
    client.transport.clock = clock

    async def sleep(seconds: float) -> None:
        clock.now += seconds + 10
        gateway.delays.append(seconds)

    client.transport.sleep = sleep
    with pytest.raises(errors.GatewayUnreachable):
        await client.run("1")
    assert clock.now <= 100 + 60


async def test_a_gateway_that_never_answers_is_given_up() -> None:
    async def wait_forever(_: httpx.Request) -> None:
        await asyncio.Event().wait()

    gateway = scripted(wait_forever)
    with pytest.raises(errors.GatewayUnreachable, match=r"no response within 0\.01 seconds"):
        await gateway.client(timeout_seconds=0.01, retries=NO_RETRIES).get("e1")


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (httpx.Response(200, text="<html>Welcome</html>"), "not a gateway's"),
        (httpx.Response(200, json=[1]), "not a gateway's"),
        (httpx.Response(200, json={"phase": "Succeeded"}), "name: Field required"),
        (httpx.Response(200, json=execution("Levitating")), "phase: Input should be"),
        (httpx.Response(200, content=b'{"x":' + b"[" * 100_000), "recursion limit"),
        (httpx.Response(200, stream=Chunks([b" " * 2**20] * (MAX_RESPONSE_BYTES // 2**20 + 1))), "more than 33554432"),
        (httpx.Response(200, headers={"Content-Encoding": "gzip"}, stream=Chunks([b"x"])), "compressed"),
    ],
)
async def test_a_response_that_is_not_a_gateway_s_is_refused(response: httpx.Response, reason: str) -> None:
    gateway = scripted(response)
    with pytest.raises(errors.UnexpectedResponse, match=reason):
        await gateway.client().get("e1")
    assert len(gateway.sent) == 1


@pytest.mark.parametrize(
    "body", [b"<html>bad gateway</html>", b"[" * 100_000, b'{"type": 1, "errors": "x"}', b"\xff\x00", b""]
)
async def test_an_error_page_of_a_proxy_becomes_an_error_with_a_bounded_text(body: bytes) -> None:
    gateway = scripted(httpx.Response(500, content=body))
    with pytest.raises(errors.Unavailable) as caught:
        await gateway.client().get("e1")
    assert "500 http: " in str(caught.value)
    assert len(str(caught.value)) < 3000


async def test_names_cannot_lead_to_other_paths() -> None:
    gateway = scripted(execution(), {"server": "x", "tools": []})
    client = gateway.client(namespace="a b")
    await client.get("../audit?x=1#")
    await client.tools("a/b")
    for name in ("", ".", ".."):
        with pytest.raises(errors.NotFound):
            await client.cancel(name)
    assert gateway.sent == [
        "GET /v1/executions/..%2Faudit%3Fx%3D1%23?namespace=a+b",
        "GET /api/v1/mcp/servers/a%2Fb/tools?namespace=a+b",
    ]


async def test_the_key_of_each_request_is_read_anew_and_never_in_an_error() -> None:
    keys = iter(["one", "two", "thr\nee"])
    gateway = scripted(execution(), execution())
    client = gateway.client(api_key=lambda: next(keys))
    await client.get("e1")
    await client.get("e1")
    assert [each.headers["Authorization"] for each in gateway.requests] == ["Bearer one", "Bearer two"]
    with pytest.raises(ValueError, match="not printable ASCII") as caught:
        await client.get("e1")
    assert "ee" not in str(caught.value).replace("three", "")


@pytest.mark.parametrize("url", ["", "gateway:8080", "ftp://gateway", "http://", "http://u:p@gateway", "http://g/?x=1"])
def test_an_address_that_is_none_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MCP_EXEC_GATEWAY", raising=False)
    with pytest.raises(ValueError, match="address"):
        AsyncClient(url)


async def test_a_client_without_arguments_reads_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_EXEC_GATEWAY", "https://gateway.test/prefix/")
    monkeypatch.setenv("MCP_EXEC_API_KEY", "k")
    async with AsyncClient() as client:
        assert (client.transport.url, client.transport.read_key()) == ("https://gateway.test/prefix", "k")


CYCLE: dict[str, object] = {}
CYCLE["a"] = [CYCLE]
DEEP: list[object] = []
for _ in range(100_000):  # more than any limit of recursion that a library sets
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (float("nan"), "context.x: nan is no JSON value"),
        ((1, float("inf")), r"context.x\[1\]: inf is no JSON value"),
        ({1, 2}, "context.x is of type set, which JSON does not have; send it as a list$"),
        (
            [{"rows": (1, Decimal(1))}],
            r"context.x\[0\].rows\[1\] is of type decimal.Decimal, .*; send it as text, a number",
        ),
        (datetime(2026, 11, 28, tzinfo=UTC), "context.x is of type datetime.datetime"),
        (b"1", "context.x is of type bytes, which JSON does not have; send it as text, or as a file of a workspace"),
        ({(1, 2): 3}, "context.x has a key of type tuple, which JSON does not have; send it as text"),
        ({"a": {None: {1}}}, "context.x.a.None is of type set"),
        (CYCLE, r"context.x.a\[0\].a\[0\].*: the data contain themselves, or are nested deeper than 900 times"),
        (DEEP, "the data contain themselves, or are nested deeper than 900 times"),
        ("x" * 4_000_000, "the request has 4000038 bytes"),
    ],
    ids=["NaN", "infinity", "set", "Decimal", "datetime", "bytes", "key", "below None", "cycle", "depth", "size"],
)
async def test_a_body_that_is_no_json_is_not_sent_and_the_error_has_the_path(value: object, said: str) -> None:
    gateway = scripted()
    with pytest.raises((TypeError, ValueError), match=said):
        await gateway.client().run("1", context={"ok": 1, "x": value})
    assert gateway.sent == []


@pytest.mark.parametrize("key", [None, "wrong"])
async def test_a_refused_key_is_named_as_the_caller_gives_it(key: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MCP_EXEC_API_KEY", raising=False)
    gateway = scripted(problem(401, "unauthenticated", "send 'Authorization: Bearer '"))
    with pytest.raises(errors.Unauthenticated) as caught:
        await gateway.client(api_key=key).get("e1")
    assert "pass another one as api_key or in $MCP_EXEC_API_KEY" in str(caught.value)
    assert "Bearer" not in str(caught.value)


async def test_a_401_of_a_proxy_is_shown_as_it_is() -> None:
    with pytest.raises(errors.Unauthenticated, match="log in at the portal"):
        await scripted(httpx.Response(401, text="log in at the portal")).client().get("e1")


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (httpx.ConnectTimeout(""), "no connection within the time limit"),
        (httpx.ReadTimeout(""), "no data within the time limit"),
        (httpx.ReadError(""), "the connection was lost"),
        (httpx.RemoteProtocolError("Server disconnected"), "Server disconnected"),
    ],
)
async def test_a_failure_without_a_text_is_named_in_words(failure: Exception, said: str) -> None:
    with pytest.raises(errors.GatewayUnreachable, match=f"executions/e1: {said}"):
        await scripted(failure).client(retries=NO_RETRIES).get("e1")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
async def test_a_refused_connection_is_named_in_words(host: str) -> None:
    async with AsyncClient(f"http://{host}:9", api_key="k", retries=NO_RETRIES) as client:
        with pytest.raises(errors.GatewayUnreachable, match=r":9/v1/executions/e1: Connection refused$"):
            await client.get("e1")
