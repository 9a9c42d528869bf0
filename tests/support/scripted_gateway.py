"""A gateway that answers a client's requests by a script, without a network."""

import json
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from mcp_exec_client.client import AsyncClient
from mcp_exec_client.transport import RetryPolicy

URL = "https://gateway.test:8080"
CREATED = "2026-11-21T20:00:00.000000Z"


def execution(phase: str = "Succeeded", **fields: Any) -> dict[str, Any]:
    """Return an execution as the gateway shows it."""
    return {"name": "e1", "namespace": "agents", "pool": "default", "phase": phase, "reason": "", **fields}


def pool(name: str, **fields: Any) -> dict[str, Any]:
    """Return a pool as the gateway shows it in the statistics of a namespace."""
    counts = dict.fromkeys(("maxPods", "warm", "starting", "busy", "queued", "maxQueued"), 0)
    return {"name": name, "maxTimeoutSeconds": 60, **counts, **fields}


def stats(pools: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """Return the statistics of a namespace as the gateway shows them."""
    counts = {"executions": {"active": 0, "own": 0}, "sessions": {"own": 0, "limit": 0}}
    limits = {"limits": {}, "gateway": {"maxWaitSeconds": 55.0, "maxBodyBytes": 4 * 2**20}}
    return {"namespace": "agents", "caller": "team-a", "pools": list(pools), **counts, **limits}


def problem(status: int, kind: str = "invalid", detail: str = "it is wrong", **more: Any) -> httpx.Response:
    """Return a response with problem details; `retry_after` becomes a header."""
    headers = {"Retry-After": str(more.pop("retry_after"))} if "retry_after" in more else {}
    body = {"type": f"urn:mcp-exec:problem:{kind}", "title": "", "status": status, "detail": detail, "errors": []}
    return httpx.Response(status, json=body | more, headers=headers)


class Chunks(httpx.AsyncByteStream):
    """A body that arrives in parts and, with `lost`, never ends."""

    def __init__(self, parts: Iterable[bytes], *, lost: bool = False) -> None:
        self._parts = parts
        self._lost = lost

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self._parts:
            yield part
        if self._lost:
            raise httpx.ReadError("connection reset")


def events(*items: dict[str, Any] | bytes, lost: bool = False) -> httpx.Response:
    """Return a stream of these events; bytes are sent as they are."""
    lines = [
        item if isinstance(item, bytes) else json.dumps({"seq": number, "at": CREATED} | item).encode() + b"\n"
        for number, item in enumerate(items)
    ]
    return httpx.Response(200, stream=Chunks(lines, lost=lost))


@dataclass
class ScriptedGateway:
    """Answers one request after the other: with a response, the JSON of a 200, or a failure of the connection."""

    script: list[Any]
    requests: list[httpx.Request] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)
    """Seconds between attempts; the client does not really wait."""

    async def handle(self, request: httpx.Request) -> httpx.Response:
        """Answer a request."""
        self.requests.append(request)
        answer = self.script.pop(0)
        if callable(answer):
            answer = await answer(request)
        if isinstance(answer, Exception):
            raise answer
        response = answer if isinstance(answer, httpx.Response) else httpx.Response(200, json=answer)
        if not isinstance(response.stream, Chunks):
            # a body that arrives, instead of one that is read already
            response = httpx.Response(response.status_code, headers=response.headers, stream=Chunks([response.content]))
        return response

    @property
    def sent(self) -> list[str]:
        """Method, path and query of each request."""
        return [f"{each.method} {each.url.raw_path.decode()}" for each in self.requests]

    def client(self, **options: Any) -> AsyncClient:
        """Return a client of this gateway, whose delays have no jitter."""
        http = httpx.AsyncClient(transport=httpx.MockTransport(self.handle))
        given = {"api_key": "k", "retries": RetryPolicy(draw=lambda: 1.0), "http": http} | options
        client = AsyncClient(URL, **given)
        client.transport.sleep = self._sleep
        return client

    async def _sleep(self, seconds: float) -> None:
        self.delays.append(seconds)


def scripted(*script: Any) -> ScriptedGateway:
    """Return a gateway that answers by this script."""
    return ScriptedGateway(list(script))
