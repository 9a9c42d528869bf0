"""Rejected requests: the status code, the field, and nothing created."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.component.gateway.conftest import CEX, DEADLINE, KEY, SECRETS, Answer, Gateway, key_entry, keys_secret
from tests.support.api_server import FakeApiServer, Fault
from tests.support.until import until

from mcp_exec_api.wire.executions import NewExecution
from mcp_exec_api.wire.problems import PROBLEM_TITLES, ProblemDetails

JSON = {"Content-Type": "application/json"}


def assert_problem(answer: Answer, status: int, *fields: str) -> ProblemDetails:
    assert answer.status == status, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem = ProblemDetails.model_validate_json(answer.text)
    assert problem.status == status
    assert PROBLEM_TITLES[problem.type.removeprefix("urn:mcp-exec:problem:")] == problem.title
    assert [error.field for error in problem.errors] == list(fields)
    assert all(error.message for error in problem.errors)
    return problem


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        (b"", 400, "body"),
        (b"{", 400, "body"),
        (b'{"code": "1"} x', 400, "body"),
        (b"\xff", 400, "body"),
        (b'{"code": "1", "code": "2"}', 400, "body"),
        (b'{"code": "1", "context": {"a": NaN}}', 400, "body"),
        (b'{"code": "1", "context": {"a": -Infinity}}', 400, "body"),
        (b"[" * 100000, 400, "body"),
        (b'{"code":"1","context":{"a":' + b"[" * 3000 + b"]" * 3000 + b"}}", 400, "body"),
        (b"[]", 422, "body"),
        (b"null", 422, "body"),
        (b"{}", 422, "code"),
        (b'{"code": ""}', 422, "code"),
        (b'{"code": 1}', 422, "code"),
        (b'{"code": "1", "cod": 1}', 422, "cod"),
        (b'{"code": "1", "cancelRequested": true}', 422, "cancelRequested"),
        (b'{"code": "1", "timeout_seconds": 3}', 422, "timeout_seconds"),
        (b'{"code": "1", "limits": {"output_bytes": 2048}}', 422, "limits.output_bytes"),
        (b'{"code": "1", "limits": {"outputBytes": 1}}', 422, "limits.outputBytes"),
        (b'{"code": "1", "timeoutSeconds": "30"}', 422, "timeoutSeconds"),
        (b'{"code": "1", "timeoutSeconds": 30.5}', 422, "timeoutSeconds"),
        (b'{"code": "1", "timeoutSeconds": true}', 422, "timeoutSeconds"),
        (b'{"code": "1", "timeoutSeconds": 0}', 422, "timeoutSeconds"),
        (b'{"code": "1", "timeoutSeconds": 301}', 422, "timeoutSeconds"),
        (b'{"code": "1", "timeoutSeconds": 61}', 422, "timeoutSeconds"),
        (b'{"code": "1", "ttlSecondsAfterFinished": -1}', 422, "ttlSecondsAfterFinished"),
        (b'{"code": "1", "context": []}', 422, "context"),
        (b'{"code": "1", "context": {"a": 1e999}}', 422, "context"),
        (b'{"code": "1", "context": {"a": [18446744073709551616]}}', 422, "context"),
        (b'{"code": "1", "poolRef": "default"}', 422, "poolRef"),
        (b'{"code": "1", "poolRef": {"name": "A"}}', 422, "poolRef.name"),
        (b'{"code": "1", "poolRef": {"name": "nope"}}', 422, "poolRef.name"),
        (b'{"code": "1", "poolRef": {"name": "default", "namespace": "x"}}', 422, "poolRef.namespace"),
        (b'{"code": "\\ud800"}', 422, "code"),
        (b'{"code": "1", "context": {"x": [1, "\\uDfff"]}}', 422, "context.x.1"),
        (b'{"code": "1", "context": {"\\ud800": 1}}', 422, "context"),
        (b'{"code": null}', 422, "code"),
        (b'{"code": "1", "cod": null}', 422, "cod"),
        (json.dumps({"code": "x" * (256 * 1024 + 1)}).encode(), 422, "code"),
        (json.dumps({"code": "\u00e9" * (128 * 1024 + 1)}).encode(), 422, "code"),
        (json.dumps({"code": "1", "context": {"a": "x" * 256 * 1024}}).encode(), 422, "context"),
        (json.dumps({"code": "x" * (1024 * 1024)}).encode(), 413, "body"),
    ],
)
async def test_a_body_that_is_wrong_is_refused_by_its_field(
    gateway: Gateway, api: FakeApiServer, body: bytes, status: int, field: str
) -> None:
    assert_problem(await gateway.post(body), status, field)
    assert gateway.executions == {}
    assert api.asked("POST", "/codeexecutions") == []
    assert gateway.dependencies.index.wait_count == 0


async def test_an_empty_body_is_refused_with_what_to_send(gateway: Gateway) -> None:
    for method, path in (("POST", "/v1/executions"), ("POST", "/v1/sessions"), ("PUT", "/v1/workspaces/w")):
        answer = await gateway.ask(method, path, data=b"", headers=JSON)
        assert "it is empty; send a JSON object, at least {}" in assert_problem(answer, 400, "body").detail


OPTIONAL = sorted(
    field.alias or name
    for name, field in NewExecution.model_fields.items()
    if not field.is_required() and name != "code"
)


@pytest.mark.parametrize("field", OPTIONAL)
async def test_an_optional_field_that_is_null_is_one_that_is_left_out(gateway: Gateway, field: str) -> None:
    for body in ({"code": "1"}, {"code": "1", field: None}):
        assert (await gateway.post(body, query="?wait=0")).status == 202
    without, with_null = gateway.executions.values()
    assert with_null["spec"] == without["spec"]


async def test_null_within_options_is_left_out_and_within_data_a_value(gateway: Gateway) -> None:
    body = {"code": "1", "context": {"a": None}, "poolRef": {"name": None}, "limits": {"outputBytes": None}}
    assert (await gateway.post(body, query="?wait=0")).status == 202
    (execution,) = gateway.executions.values()
    assert execution["spec"]["context"] == {"a": None}
    assert execution["spec"]["poolRef"] == {"name": "default"}


async def test_an_unknown_pool_is_refused_with_those_that_there_are(gateway: Gateway) -> None:
    problem = assert_problem(await gateway.post({"code": "1", "poolRef": {"name": "nope"}}), 422, "poolRef.name")
    assert "default, long" in problem.detail


async def test_a_timeout_over_the_pools_is_refused_with_the_bound(gateway: Gateway) -> None:
    problem = assert_problem(await gateway.post({"code": "1", "timeoutSeconds": 61}), 422, "timeoutSeconds")
    assert "60 seconds that pool default allows" in problem.detail


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("?wait=-1", "wait"),
        ("?wait=x", "wait"),
        ("?wait=nan", "wait"),
        ("?wait=inf", "wait"),
        ("?wait=311", "wait"),
        ("?onDisconnect=maybe", "onDisconnect"),
        ("?on_disconnect=cancel", "on_disconnect"),
        ("?wiat=1", "wiat"),
        ("?wait=0&wait=0", "wait"),
        ("?wiat=1&wiat=1", "wiat"),
        ("?namespace=agents&namespace=agents", "namespace"),
    ],
)
async def test_a_query_parameter_that_is_wrong_is_refused(gateway: Gateway, query: str, field: str) -> None:
    assert_problem(await gateway.post(query=query), 422, field)
    assert gateway.executions == {}


@pytest.mark.parametrize(
    ("method", "path", "field"),
    [
        ("GET", "?limit=0", "limit"),
        ("GET", "?limit=501", "limit"),
        ("GET", "?phase=Done", "phase"),
        ("GET", "?fieldSelector=a", "fieldSelector"),
        ("GET", "/exec-a?wait=311", "wait"),
        ("GET", "/exec-a?x=1", "x"),
        ("DELETE", "/exec-a?wait=1", "wait"),
        ("GET", "/exec-a/events?wait=1", "wait"),
        ("GET", "/exec-a/events?lastEventId=x", "lastEventId"),
    ],
)
async def test_other_routes_refuse_wrong_parameters_too(gateway: Gateway, method: str, path: str, field: str) -> None:
    assert_problem(await gateway.ask(method, "/v1/executions" + path), 422, field)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/executions/", 404),
        ("GET", "/v1/executions/exec-000000000000", 404),
        ("GET", "/v1/executions/exec-000000000000/events", 404),
        ("DELETE", "/v1/executions/exec-000000000000", 404),
        ("PUT", "/v1/executions", 405),
        ("POST", "/v1/executions/exec-000000000000", 405),
        ("POST", "/healthz", 405),
    ],
)
async def test_paths_and_methods_that_do_not_exist_are_problems_too(
    gateway: Gateway, method: str, path: str, status: int
) -> None:
    answer = await gateway.ask(method, path)
    assert_problem(answer, status)
    assert (status == 405) == ("Allow" in answer.headers)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/mcp", "DELETE, GET, POST"),
        ("HEAD", "/mcp", "DELETE, GET, POST"),
        ("GET", "/mcp", "DELETE, GET, POST"),
        ("PATCH", "/mcp/", "DELETE, GET, POST"),
        ("PUT", "/v1/executions", "GET, POST"),
    ],
)
async def test_a_method_that_a_path_does_not_have_names_all_that_it_has(
    gateway: Gateway, method: str, path: str, allowed: str
) -> None:
    answer = await gateway.ask(method, path)
    assert (answer.status, answer.headers["Allow"]) == (405, allowed)


async def test_a_body_of_another_type_is_refused(gateway: Gateway) -> None:
    answer = await gateway.ask("POST", "/v1/executions", data=b"print(1)", headers={"Content-Type": "text/plain"})
    assert_problem(answer, 415)


async def test_a_body_that_does_not_say_how_long_it_is_is_cut_off(gateway: Gateway) -> None:
    sent = 0

    async def endless() -> Any:
        nonlocal sent
        while sent < 50 * 1024 * 1024:
            sent += 65536
            yield b"x" * 65536

    reader, writer = await asyncio.open_connection("127.0.0.1", int(gateway.url.rsplit(":", 1)[1]))
    async with asyncio.timeout(DEADLINE):
        head = f"POST /v1/executions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
        writer.write((head + "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n").encode())
        try:
            async for chunk in endless():
                writer.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                await writer.drain()
            answer = await reader.read(64 * 1024)
        except ConnectionError:
            answer = b""  # the connection may be reset before the answer is read
        writer.close()
    assert b" 413 " in answer or answer == b""
    assert sent < 40 * 1024 * 1024
    assert gateway.executions == {}


async def test_a_head_without_end_is_cut_off(gateway: Gateway) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(gateway.url.rsplit(":", 1)[1]))
    async with asyncio.timeout(DEADLINE):
        writer.write(b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 200 * 1024)
        try:
            answer = await reader.read()
        except ConnectionError:
            answer = b""
        assert answer == b""
        writer.close()


@pytest.mark.parametrize("key", ["", "a\tb", "é", "k" * 256])
async def test_an_idempotency_key_that_is_none_is_refused(gateway: Gateway, key: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(gateway.url.rsplit(":", 1)[1]))
    async with asyncio.timeout(DEADLINE):
        head = f"POST /v1/executions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nIdempotency-Key: {key}\r\n"
        writer.write(
            (head + "Content-Type: application/json\r\nContent-Length: 12\r\nConnection: close\r\n\r\n").encode()
        )
        writer.write(b'{"code":"1"}')
        answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 422")
    assert b'"field": "Idempotency-Key"' in answer
    assert gateway.executions == {}


async def test_a_keys_limits_are_refused_by_their_field(gateway: Gateway, api: FakeApiServer) -> None:
    api.put(SECRETS, keys_secret(**{"team-a": key_entry(KEY, maxTimeoutSeconds=20, pools=["default"])}))
    keys = gateway.dependencies.keys
    await until(lambda: (found := keys.find(KEY)) is not None and found.entry.limits.pools == ["default"])
    assert_problem(await gateway.post({"code": "1", "poolRef": {"name": "long"}}), 403, "poolRef.name")
    assert_problem(await gateway.post({"code": "1", "timeoutSeconds": 21}), 422, "timeoutSeconds")
    assert gateway.executions == {}
    made = (await gateway.post({"code": "1"}, "?wait=0")).json["name"]
    assert gateway.executions[made]["spec"]["timeoutSeconds"] == 20


@pytest.mark.parametrize(
    ("fault", "status", "fields"),
    [
        (
            Fault("POST", "/codeexecutions", 422, details={"causes": [{"field": "spec.code", "message": "bad"}]}),
            422,
            ["code"],
        ),
        (Fault("POST", "/codeexecutions", 403, message='exceeded quota: "q"'), 429, []),
        (Fault("POST", "/codeexecutions", 403, message='admission webhook "w" denied the request: no'), 422, []),
        (Fault("POST", "/codeexecutions", 403, message="forbidden: User cannot create"), 503, []),
        (Fault("POST", "/codeexecutions", 403, message="status unknown for quota: q, resources: r"), 503, []),
        (Fault("POST", "/codeexecutions", 404), 503, []),
        (Fault("POST", "/codeexecutions", 413), 413, []),
        (Fault("POST", "/codeexecutions", 500, message="etcdserver: request is too large"), 413, []),
    ],
)
async def test_what_the_cluster_refuses_is_told_as_its_own_problem(
    gateway: Gateway, api: FakeApiServer, fault: Fault, status: int, fields: list[str]
) -> None:
    api.faults += [fault, fault] if fault.what == 500 else [fault]
    assert_problem(await gateway.post(), status, *fields)
    assert gateway.executions == {}
    assert gateway.dependencies.index.count_active("agents", "team-a") == 0


async def test_a_creation_that_was_not_carried_out_is_503_and_names_the_execution(
    gateway: Gateway, api: FakeApiServer
) -> None:
    api.faults.append(Fault("POST", "/codeexecutions", "lost before"))
    answer = await gateway.post(query="?wait=0")
    problem = assert_problem(answer, 503)
    assert answer.headers["Retry-After"]
    assert problem.execution is not None
    assert gateway.executions == {}


async def test_a_creation_that_met_itself_makes_one_execution(gateway: Gateway, api: FakeApiServer) -> None:
    # the API server carries it out, then says that it is busy; the client tries again and finds the name taken
    api.faults.append(Fault("POST", "/codeexecutions", "busy after"))
    answer = await gateway.post(query="?wait=0")
    assert answer.status == 202
    assert list(gateway.executions) == [answer.json["name"]]


async def test_an_api_server_that_fails_is_503_on_each_route_that_asks_it(gateway: Gateway, api: FakeApiServer) -> None:
    name = (await gateway.post(query="?wait=0")).json["name"]
    for method, path in [("GET", f"/{name}"), ("DELETE", f"/{name}"), ("GET", f"/{name}/events")]:
        api.faults += [Fault("GET", f"/{name}", 500), Fault("GET", f"/{name}", 500)]
        assert_problem(await gateway.ask(method, "/v1/executions" + path), 503)
    assert api.faults == []


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    ["code", "context", "poolRef", "timeoutSeconds", "limits", "ttlSecondsAfterFinished", "cancelRequested", "x"]
)
PLAUSIBLE = st.fixed_dictionaries(
    {"code": st.text(min_size=1, max_size=30)},
    optional={
        "context": st.dictionaries(st.text(max_size=5), JSON_VALUES, max_size=4),
        "timeoutSeconds": st.integers(-1, 70),
        "limits": st.fixed_dictionaries({"outputBytes": st.integers(1000, 3000)}),
    },
)
BODIES = st.one_of(
    st.binary(max_size=60),
    PLAUSIBLE.map(json.dumps).map(str.encode),
    JSON_VALUES.map(json.dumps).map(str.encode),
    st.dictionaries(FIELDS, JSON_VALUES, max_size=5).map(lambda body: json.dumps({"code": "1"} | body).encode()),
)


async def test_whatever_is_sent_is_accepted_or_refused_as_a_problem(gateway: Gateway) -> None:
    loop = asyncio.get_running_loop()

    @settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(body=BODIES)
    def fuzz(body: bytes) -> None:
        before = len(gateway.executions)
        answer = asyncio.run_coroutine_threadsafe(gateway.post(body, "?wait=0"), loop).result(DEADLINE)
        if answer.status == 202:
            made = gateway.executions[answer.json["name"]]["spec"]
            assert made["code"] == json.loads(body)["code"]
            assert made["context"] == json.loads(body).get("context", {})
            assert len(gateway.executions) == before + 1
        else:
            assert answer.status in (400, 422)
            ProblemDetails.model_validate_json(answer.text)
            assert len(gateway.executions) == before

    await asyncio.to_thread(fuzz)
    assert CEX in gateway.api.collections
