"""The supervisor's HTTP interface."""

import json
import socket
import sys
from importlib.metadata import version

import httpx
import pytest
from tests.support.pace import paced

BODY = {"id": "uid-1", "code": "print(1)", "context": {}, "timeoutSeconds": 5, "outputBytes": 1000}
FOREVER = "import threading\nprint('waiting')\nthreading.Event().wait()\n"


def events_of(response):
    return [json.loads(line) for line in response.iter_lines()]


def test_health_needs_no_token_and_tells_the_state(sandbox):
    client = sandbox.client
    health = {"wrappers": None, "protocols": [1, 2]}
    assert httpx.get(f"{client.base_url}/healthz", trust_env=False).json() == {"state": "idle", **health}
    sandbox.run("1")
    assert client.get("/healthz").json() == {"state": "finished", **health}


@pytest.mark.parametrize("versions", ["0", "3", "3, 4", "1;2", "-1", "x", "1,", "1" * 7, ", ".join("3" * 17)])
def test_a_request_in_no_version_of_the_protocol_that_it_speaks_is_refused(idle, versions):
    response = idle.client.get("/v1/execution", headers={"mcp-exec-protocol": versions})
    assert response.status_code == 400
    assert response.json() == {"error": "the protocol must be one of 1, 2"}


@pytest.mark.parametrize("versions", [None, "1", "2", "1, 2", "2,3"])
def test_a_request_in_a_version_that_it_speaks_is_answered(idle, versions):
    headers = {} if versions is None else {"mcp-exec-protocol": versions}
    assert idle.client.get("/v1/execution", headers=headers).json()["state"] == "idle"


@pytest.mark.parametrize("header", [None, "Bearer wrong", "Basic a-token-of-this-test", "Bearer", "Bearer é"])
@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/v1/execution"), ("GET", "/v1/execution/events"), ("GET", "/x")]
)
def test_without_the_token_nothing_is_answered(idle, header, method, path):
    url = f"{idle.client.base_url}{path}"
    headers = {} if header is None else {"authorization": header.encode("latin-1")}
    response = httpx.request(method, url, headers=headers, json=BODY, trust_env=False)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert "error" in response.json()


def test_events_are_numbered_and_dated(reused):
    run = reused.run("print('a')\n5")
    assert [event["seq"] for event in run.events] == [1, 2, 3, 4]
    assert [event["type"] for event in run.events] == ["status", "stdout", "result", "end"]
    assert run.events[0]["phase"] == "Running"
    for event in run.events:
        assert len(event["at"]) == len("2026-01-01T00:00:00.000000Z")
        assert event["at"].endswith("Z")
    assert set(run.end) == {
        *("seq", "at", "type", "phase", "reason", "error", "exitCode"),
        *("stdoutBytes", "stderrBytes", "truncated", "runMs", "peakMemoryBytes", "cpuSeconds"),
    }
    assert run.end["runMs"] > 0


def test_the_stream_is_ndjson(reused):
    response = reused.start("1")
    assert response.headers["content-type"] == "application/x-ndjson"
    assert response.headers["transfer-encoding"] == "chunked"
    response.read()


def test_output_comes_while_the_code_runs(sandbox):
    response = sandbox.start(FOREVER)
    lines = response.iter_lines()
    assert json.loads(next(lines))["type"] == "status"
    assert json.loads(next(lines))["text"] == "waiting\n"
    assert sandbox.client.get("/v1/execution").json() == {"state": "running", "id": "uid-1", "lastSeq": 2, "uses": 1}
    response.close()


def test_a_second_execution_is_refused_whether_the_first_runs_or_not(sandbox):
    first = sandbox.start(FOREVER)
    again = sandbox.start("1", id="uid-2")
    assert again.status_code == 409
    assert json.loads(again.read())["id"] == "uid-1"
    sandbox.client.delete("/v1/execution")
    assert events_of(first)[-1]["phase"] == "Cancelled"
    assert sandbox.start("1").status_code == 409


def test_events_are_replayed_from_any_number(reused):
    run = reused.run("print('a')\n5")
    for first in (1, 2, 4):
        with reused.client.stream("GET", f"/v1/execution/events?from={first}") as response:
            assert events_of(response) == run.events[first - 1 :]
    with reused.client.stream("GET", "/v1/execution/events") as response:
        assert events_of(response) == run.events
    with reused.client.stream("GET", "/v1/execution/events?from=100") as response:
        assert events_of(response) == []


def test_many_readers_follow_to_the_end(reused):
    lines = reused.start(FOREVER).iter_lines()
    first = [json.loads(next(lines)) for _ in range(2)]
    with (
        reused.client.stream("GET", "/v1/execution/events") as one,
        reused.client.stream("GET", "/v1/execution/events?from=3") as two,
    ):
        assert reused.client.delete("/v1/execution").status_code == 202
        rest = [json.loads(line) for line in lines]
        assert events_of(one) == first + rest
        assert events_of(two) == rest


def test_a_client_that_goes_away_does_not_stop_the_run(reused):
    code = "import os\nwhile not os.path.exists('go'):\n    pass\n'done'"
    response = reused.start(code)
    next(response.iter_raw())
    response.close()
    (reused.workspace / "go").touch()
    with reused.client.stream("GET", "/v1/execution/events") as response:
        assert [event["type"] for event in events_of(response)] == ["status", "result", "end"]


def test_a_run_is_cancelled(reused):
    response = reused.start("try:\n    while True: pass\nfinally:\n    print('cleaned up')\n")
    lines = response.iter_lines()
    next(lines)
    assert reused.client.delete("/v1/execution").status_code == 202
    *_, last = [json.loads(line) for line in lines]
    assert (last["phase"], last["reason"]) == ("Cancelled", "Cancelled")
    assert last["error"]["type"] == "CancelledError"
    assert reused.client.delete("/v1/execution").status_code == 200


def test_without_an_execution_there_is_nothing_to_cancel_or_to_read(idle):
    assert idle.client.delete("/v1/execution").status_code == 409
    assert idle.client.get("/v1/execution/events").status_code == 404


@pytest.mark.parametrize("query", ["from=0", "from=x", "from=-1", "since=1", "from=99999999999"])
def test_a_bad_offset_is_refused(idle, query):
    response = idle.client.get(f"/v1/execution/events?{query}")
    assert response.status_code == 400
    assert query.partition("=")[0] in response.json()["error"]


BAD_BODIES = [
    (b"", "object"),
    (b"{", "object"),
    (b"[]", "object"),
    (b'{"id": NaN}', "object"),
    (b"[" * 100_000, "object"),
    (b"\xff\xfe", "object"),
]


@pytest.mark.parametrize(("body", "text"), BAD_BODIES)
def test_a_body_that_is_no_object_is_refused(idle, body, text):
    response = idle.client.post("/v1/execution", content=body)
    assert response.status_code == 400
    assert text in response.json()["error"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", ""),
        ("id", 5),
        ("code", None),
        ("context", []),
        ("timeoutSeconds", 0),
        ("timeoutSeconds", True),
        ("timeoutSeconds", "5"),
        ("timeoutSeconds", 1e9),
        ("outputBytes", -1),
        ("outputBytes", 1.5),
        ("outputBytes", 1 << 30),
        ("retries", 1),
        ("libraries", []),
        ("libraries", {"pandas": "data"}),
        ("libraries", {"pandas": [["data"]]}),
        ("libraries", {"pandas": [["data", 2]]}),
        ("libraries", {"x" * 300: []}),
        ("libraries", {"pandas": [["data", "2"]] * 9}),
        ("libraries", {f"n{number}": [] for number in range(65)}),
    ],
)
def test_a_bad_field_is_named_and_nothing_is_accepted(idle, field, value):
    response = idle.client.post("/v1/execution", json={**BODY, field: value})
    assert response.status_code == 400
    assert response.json()["error"].startswith(f"{field}:")


@pytest.mark.parametrize("field", ["id", "code", "timeoutSeconds", "outputBytes"])
def test_a_missing_field_is_named(idle, field):
    response = idle.client.post("/v1/execution", json={name: BODY[name] for name in BODY if name != field})
    assert response.json()["error"].startswith(f"{field}:")


def test_a_body_that_is_too_large_is_refused(idle):
    response = idle.client.post("/v1/execution", content=b" " * (5 << 20))
    assert response.status_code == 413


def test_a_large_body_within_the_bound_is_accepted(reused):
    run = reused.run("len(context['data'])", context={"data": "x" * (3 << 20)})
    assert run.result == 3 << 20


def test_other_paths_and_methods_are_refused(idle):
    assert idle.client.get("/v1/other").status_code == 404
    response = idle.client.put("/v1/execution")
    assert (response.status_code, response.headers["allow"]) == (405, "DELETE, GET, POST")


def connect(sandbox, source="127.0.0.1"):
    url = sandbox.client.base_url
    return socket.create_connection((url.host, url.port), timeout=paced(10), source_address=(source, 0))


def test_headers_without_end_close_the_connection(idle):
    with connect(idle) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nx: " + b"x" * 40_000)
        assert connection.recv(100) in (b"", b"HTTP/1.1 400 Bad Request\r\n")
    assert idle.client.get("/healthz").status_code == 200


def test_connections_from_the_sandbox_itself_are_few(sandbox):
    assert sandbox.client.get("/healthz").status_code == 200
    held = [connect(sandbox, f"127.0.0.{number}") for number in range(1, 16)]
    with connect(sandbox, "127.9.9.9") as one_more:
        assert one_more.recv(100) == b""
    for connection in held:
        connection.close()


def test_several_requests_share_a_connection(idle):
    with connect(idle) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n" * 3)
        received = b""
        while received.count(b'"state": "idle"') < 3:
            data = connection.recv(4096)
            assert data
            received += data


def test_a_client_that_asks_first_is_told_to_continue(idle):
    with connect(idle) as connection:
        head = (
            b"POST /v1/execution HTTP/1.1\r\nhost: x\r\nauthorization: Bearer a-token-of-this-test\r\n"
            b"content-length: 2\r\nexpect: 100-continue\r\n\r\n"
        )
        connection.sendall(head)
        assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
        connection.sendall(b"{}")
        assert connection.recv(100).startswith(b"HTTP/1.1 400 ")


def test_a_refused_body_does_not_cost_the_client_its_answer(idle):
    with connect(idle) as connection:
        connection.sendall(b"POST /v1/execution HTTP/1.1\r\nhost: x\r\ncontent-length: 300000\r\n\r\n" + b"x" * 300_000)
        received = b""
        while data := connection.recv(4096):
            received += data
        assert received.startswith(b"HTTP/1.1 401 ")
        assert b"connection: close" in received.lower()


def test_a_refused_request_without_a_body_leaves_the_connection_open(idle):
    with connect(idle) as connection:
        for _ in range(3):
            connection.sendall(b"GET /v1/execution HTTP/1.1\r\nhost: x\r\n\r\n")
            assert connection.recv(4096).startswith(b"HTTP/1.1 401 ")


def test_the_libraries_of_the_image_are_listed_at_any_time(sandbox):
    answer = sandbox.client.get("/v1/libraries").json()
    assert answer["python"] == ".".join(map(str, sys.version_info[:3]))
    libraries = {library["name"]: library for library in answer["libraries"]}
    assert libraries["pandas"] == {"name": "pandas", "version": version("pandas"), "imports": ["pandas"]}
    assert sandbox.run("1").phase == "Succeeded"
    assert sandbox.client.get("/v1/libraries").json() == answer
