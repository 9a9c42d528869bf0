"""The control side of one replica of the broker, on loopback: catalogs and records, as tests set them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer
from aiohttp.typedefs import Handler

from mcp_exec_common.broker.grants import GrantError, GrantSigner

Object = dict[str, Any]


class FakeBroker:
    """Answers with `catalogs` by namespace and `records`, newest first; `asked` has each request's path and query."""

    def __init__(self, *, key: bytes) -> None:
        self.catalogs: dict[str, Object] = {}
        self.records: list[Object] = []
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.senders: set[str] = set()
        self.broken = False
        self.calls: Object = {}
        """The answer about every execution."""
        self.raw: bytes | None = None
        """The body of every answer, whatever is asked."""
        self.honest = True
        """Whether it tells of the namespace alone that it was asked for."""
        self.port = 0
        self._signer = GrantSigner(key=key)

    @asynccontextmanager
    async def running(self, host: str = "127.0.0.1") -> AsyncIterator["FakeBroker"]:
        app = web.Application(middlewares=[self._answer_raw])
        app.router.add_get("/v1/namespaces/{namespace}/catalog", self._catalog)
        app.router.add_get("/v1/audit", self._audit)
        app.router.add_route("*", "/v1/executions/{uid}", self._calls)
        async with TestServer(app, host=host) as server:
            assert server.port is not None
            self.port = server.port
            yield self

    def endpoints(self, *hosts: str, name: str = "mcp-exec-broker") -> Object:
        """The Endpoints object of the replicas at these hosts, all at this one's port."""
        ports = [{"name": "calls", "port": 1}, {"name": "control", "port": self.port}]
        addresses = [{"ip": host} for host in hosts or ("127.0.0.1",)]
        return {"metadata": {"name": name}, "subsets": [{"addresses": addresses, "ports": ports}]}

    def _check(self, request: web.Request) -> None:
        try:
            token = request.headers.get("Authorization", "").removeprefix("Bearer ")
            self.senders.add(self._signer.read_service_token(token))
        except GrantError:
            raise web.HTTPUnauthorized from None
        self.asked.append((request.path, dict(request.query)))
        if self.broken:
            raise web.HTTPInternalServerError

    @web.middleware
    async def _answer_raw(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        return await handler(request) if self.raw is None else web.Response(body=self.raw)

    async def _catalog(self, request: web.Request) -> web.Response:
        self._check(request)
        found = self.catalogs.get(request.match_info["namespace"], {"hash": "none", "servers": []})
        return web.json_response(found)

    async def _calls(self, request: web.Request) -> web.Response:
        self._check(request)
        return web.json_response(self.calls)

    async def _audit(self, request: web.Request) -> web.Response:
        self._check(request)
        if request.query.get("outcome", "ok") not in ("ok", "error"):
            raise web.HTTPBadRequest
        query, start = request.query, int(request.query.get("cursor", "0"))
        found = [
            record
            for record in self.records
            if record["at"] < query["until"]
            and record["at"] >= query.get("since", "")
            and (record["namespace"] == query["namespace"] or not self.honest)
            and all(record.get(name) == query[name] for name in ("execution", "tool", "outcome") if name in query)
        ]
        end = start + int(query["limit"])
        return web.json_response({"items": found[start:end], "next": str(end) if end < len(found) else None})
