"""The broker's control interface on loopback, with what the test says that it knows."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer
from tests.component.operator.world import KEY, World

from mcp_exec_common.broker.grants import GrantSigner
from mcp_exec_common.kube.client import resource_path
from mcp_exec_common.kube.objects import Object

RELEASE = "mcp-exec-system"
SERVICE = "mcp-exec-broker"
SERVICES = resource_path("services", namespace=RELEASE)
ENDPOINTS = resource_path("endpoints", namespace=RELEASE)


class FakeBroker:
    """One replica. `calls` is what it knows by execution, `files` the wrappers that it makes."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.calls: dict[str, Object] = {}
        self.wrappers: Object = {"hash": "one", "files": {"github/__init__.py": ""}}
        self.closed: list[str] = []
        self.asked: list[str] = []
        self.broken = False
        """Whether it answers nothing but errors."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator["FakeBroker"]:
        app = web.Application()
        app.router.add_get("/v1/executions/{uid}", self._known)
        app.router.add_delete("/v1/executions/{uid}", self._close)
        app.router.add_get("/v1/namespaces/{namespace}/wrappers", self._wrappers)
        async with TestServer(app, host="127.0.0.1") as server:
            ports = [{"name": "control", "port": server.port}]
            subsets = [{"addresses": [{"ip": "127.0.0.1"}], "ports": ports}]
            self.world.put(ENDPOINTS, {"metadata": {"name": SERVICE}, "subsets": subsets})
            spec = {"clusterIP": "10.0.0.9", "ports": [{"name": "calls", "port": 8082}]}
            self.world.put(SERVICES, {"metadata": {"name": SERVICE}, "spec": spec})
            yield self

    def _check(self, request: web.Request) -> None:
        token = request.headers["Authorization"].removeprefix("Bearer ")
        assert GrantSigner(key=KEY).read_service_token(token) == "operator"
        self.asked.append(request.path)
        self.world.note()
        if self.broken:
            raise web.HTTPServiceUnavailable

    def _answer(self, uid: str) -> web.Response:
        empty: dict[str, Any] = {"toolCalls": {"total": 0}, "approvals": []}
        return web.json_response(self.calls.get(uid, empty))

    async def _known(self, request: web.Request) -> web.Response:
        self._check(request)
        return self._answer(request.match_info["uid"])

    async def _close(self, request: web.Request) -> web.Response:
        self._check(request)
        self.closed.append(request.match_info["uid"])
        return self._answer(request.match_info["uid"])

    async def _wrappers(self, request: web.Request) -> web.Response:
        self._check(request)
        return web.json_response(self.wrappers)
