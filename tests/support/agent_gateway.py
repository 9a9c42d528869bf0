"""A gateway in the process: what an agent needs of it, by a script and without a network."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from mcp_exec_client.client import AsyncClient
from mcp_exec_client.transport import NO_RETRIES
from mcp_exec_tools.names import camel_case
from tests.support.scripted_gateway import CREATED, URL, execution, problem, stats

Object = dict[str, Any]
DIGEST = "sha256:" + "0" * 64


class _Lines(httpx.AsyncByteStream):
    def __init__(self, lines: AsyncIterator[bytes]) -> None:
        self._lines = lines

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for line in self._lines:
            yield line


@dataclass(kw_only=True)
class Run:
    """Outcome of a block of code."""

    stdout: str = ""
    phase: str = "Succeeded"
    error: Object | None = None
    approvals: tuple[str, ...] = ()
    """Tools whose calls need an approval before the code ends."""
    hangs: bool = False
    """Whether it never ends, unless it is cancelled."""
    stream_lost: bool = False


def tool(server: str, name: str, description: str = "", **properties: str) -> Object:
    schema = {"type": "object", "properties": {key: {"type": kind} for key, kind in properties.items()}}
    return {
        "name": name,
        "server": server,
        "description": description or name,
        "import": f"from servers.{server} import {name}",
        "input_schema": schema,
    }


Answer = Object | str | Callable[[Object], Object | str]


@dataclass(kw_only=True)
class AgentGateway:
    """Executions, direct calls, approvals, reports and assignments."""

    tools: list[Object] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    answers: dict[str, Answer] = field(default_factory=dict)
    """Results of direct calls by the name of the tool; a text is an error of the protocol."""
    consent: set[str] = field(default_factory=set)
    """Tools whose direct calls need an approval."""
    assignment: Object | httpx.Response = field(default_factory=lambda: problem(503, "unavailable"))
    refusal: httpx.Response | None = None
    """Response to the creation of executions."""
    created: asyncio.Event | None = None
    """If set, the first creation of an execution waits for it."""
    report_refusal: httpx.Response | None = None
    executions: list[Object] = field(default_factory=list)
    calls: list[Object] = field(default_factory=list)
    """Parameters of direct calls."""
    queries: list[httpx.QueryParams] = field(default_factory=list)
    """Parameters of the requests to the MCP endpoint."""
    decisions: list[Object] = field(default_factory=list)
    reports: list[Object] = field(default_factory=list)
    assigned: list[Object] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    cancelled_once: asyncio.Event = field(default_factory=asyncio.Event)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    pools: list[dict[str, Any]] = field(default_factory=list)
    """Pools that the caller may use."""
    _decided: asyncio.Event = field(default_factory=asyncio.Event)
    _names: dict[str, str] = field(default_factory=dict)
    """Names of executions by the key of the request that created them."""

    def client(self) -> AsyncClient:
        http = httpx.AsyncClient(transport=httpx.MockTransport(self.handle))
        return AsyncClient(URL, api_key="k", retries=NO_RETRIES, http=http)

    async def handle(self, request: httpx.Request) -> httpx.Response:
        """Answer a request."""
        body = json.loads(request.content) if request.content else {}
        path = request.url.path
        if path == "/api/v1/mcp/tools/search":
            found = self._search(request.url.params)
        elif path == "/v1/stats":
            found = stats(self.pools)
        elif path == "/mcp":
            self.queries.append(request.url.params)
            found = self._answer_mcp(body)
        elif path.startswith("/v1/executions"):
            key = request.headers.get("Idempotency-Key", "")
            found = self._answer_execution(request.method, path.split("/")[3:], body, key=key)
            if request.method == "POST" and self.created is not None:
                created, self.created = self.created, None
                await created.wait()
        elif path.startswith("/v1/conversations/"):
            self.reports.append({"conversation": path.split("/")[3], **body})
            found = self.report_refusal or {}
        else:
            self.assigned.append({"path": path, **body})
            found = self.assignment
        if not isinstance(found, httpx.Response):
            return _respond(found)
        is_stream = isinstance(found.stream, _Lines)
        return found if is_stream else _respond(json.loads(found.content), status=found.status_code)

    def _search(self, query: httpx.QueryParams) -> Any:
        hidden = {"name_only": ("description", "import", "input_schema"), "with_description": ("input_schema",)}
        words = set(query["query"].lower().split())
        ranked = sorted(self.tools, key=lambda each: -len(words & set(each["description"].lower().split())))
        if query.get("language") == "typescript":
            ranked = [
                each | {"name": (name := camel_case(each["name"])), "import": f"import {{ {name} }}"} for each in ranked
            ]
        drop = hidden.get(query["detail_level"], ())
        return [{key: value for key, value in each.items() if key not in drop} for each in ranked]

    def _answer_mcp(self, body: Object) -> Object:
        params = body["params"]
        if body["method"] == "tools/list":
            listed = [
                {"name": f"{each['server']}__{each['name']}", "description": each["description"]}
                | {"inputSchema": each["input_schema"]}
                for each in self.tools
            ]
            return {"jsonrpc": "2.0", "id": body["id"], "result": {"tools": listed}}
        self.calls.append(params)
        name = params["name"]
        if name in self.consent and "requestState" not in params:
            form = {"resultType": "input_required", "inputRequests": {"approval": {}}, "requestState": "s1"}
            return {"jsonrpc": "2.0", "id": body["id"], "result": form}
        answer = self.answers[name]
        given = answer(params) if callable(answer) else answer
        outcome = {"error": {"code": -32602, "message": given}} if isinstance(given, str) else {"result": given}
        return {"jsonrpc": "2.0", "id": body["id"], **outcome}

    def _answer_execution(self, method: str, rest: list[str], body: Object, *, key: str) -> Any:
        if not rest:
            if self.refusal is not None:
                return self.refusal
            if not key or key not in self._names:  # a client that gave up learns the name by the same key
                self.executions.append(body)
                self._names[key] = f"e{len(self.executions)}"
                self.started.set()
            return execution("Pending", name=self._names[key])
        name, number = rest[0], int(rest[0][1:]) - 1
        run = self.runs[number]
        if method == "DELETE":
            self.cancelled.append(name)
            self.cancelled_once.set()
            return execution("Cancelled", name=name)
        if rest[1:] == ["events"]:
            return httpx.Response(200, stream=_Lines(self._stream(run)))
        if rest[1:] == ["approvals"]:
            return {"items": [_approval(f"a{place}", tool) for place, tool in enumerate(run.approvals)]}
        if rest[1:2] == ["approvals"]:
            self.decisions.append({"id": rest[2], **body})
            if len(self.decisions) >= len(run.approvals):
                self._decided.set()
            return _approval(rest[2], run.approvals[int(rest[2][1:])])
        output = {"stdout": run.stdout, "stderr": "", "stdoutBytes": 0, "stderrBytes": 0, "truncated": False}
        reason = "UserError" if run.phase == "Failed" else ""
        return execution(run.phase, name=name, output=output, error=run.error, reason=reason)

    async def _stream(self, run: Run) -> AsyncIterator[bytes]:
        def event(number: int, kind: str, **fields: Any) -> bytes:
            identity = {"id": str(number), "seq": number, "at": CREATED, "type": kind}
            return json.dumps(identity | fields).encode() + b"\n"

        yield event(1, "status", phase="Running")
        if run.stream_lost:
            raise httpx.ReadError("connection reset")
        for place, name in enumerate(run.approvals):
            yield event(2 + place, "approval", approval=f"a{place}", tool=name)
        if run.approvals:
            await self._decided.wait()
        if run.hangs:
            await asyncio.Event().wait()
        if run.stdout:
            yield event(90, "stdout", text=run.stdout)
        yield event(99, "end", phase=run.phase, reason="")


def _approval(name: str, path: str) -> Object:
    times = {"requestedAt": CREATED, "expiresAt": CREATED}
    return {"id": name, "tool": path, "arguments": '{"id": 1}', "argumentsDigest": DIGEST, "state": "Pending", **times}


def _respond(body: Any, *, status: int = 200) -> httpx.Response:
    """Return a response whose body arrives, instead of one that is read already."""

    async def parts() -> AsyncIterator[bytes]:
        yield json.dumps(body).encode()

    return httpx.Response(status, headers={"Content-Type": "application/json"}, stream=_Lines(parts()))
