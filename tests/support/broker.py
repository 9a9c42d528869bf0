"""The control interface of one replica of the broker, on loopback."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from aiohttp import web
from aiohttp.test_utils import TestServer
from aiohttp.typedefs import Handler

from mcp_exec_common.broker.grants import GrantError, GrantSigner
from mcp_exec_common.kube.client import resource_path
from mcp_exec_common.peers import PROOF_PATH, broker_key, compute_proof
from mcp_exec_common.sandbox_keys import SandboxKeys
from tests.support.api_server import FakeApiServer
from tests.support.attacks import Play
from tests.support.broker_files import FakeFiles
from tests.support.constants import SANDBOX_KEY

Object = dict[str, Any]


SLICES = resource_path("endpointslices", namespace="mcp-exec-system", group="discovery.k8s.io/v1")


def tool(name: str, description: str, **more: Any) -> Object:
    return {"name": name, "description": description, "inputSchema": {"type": "object"}, **more}


CATALOG: Object = {
    "hash": "one",
    "servers": [
        {
            "server": "github",
            "available": True,
            "description": "",
            "tools": [
                tool("create_issue", "Create a new issue", outputSchema={"type": "object", "properties": {}}),
                tool("create_pull_request", "Create a new pull request"),
                tool("get_file_contents", "Get the contents of a file"),
            ],
        },
        {"server": "my-docs", "available": False, "description": "", "tools": [tool("get-page", "Reads a page")]},
    ],
}


GITHUB_CATALOG: Final = json.dumps(
    {"servers": [{"server": "github", "module": "github", "tools": [{"name": "create_issue"}]}]}
)


class FakeBroker:
    """Answers with `catalogs` by namespace, `records`, newest first, `wrappers`, and `calls` by execution.

    `asked` has each request's path and query; `on_request` is called after each.
    """

    def __init__(self, *, key: bytes, on_request: Callable[[], None] = lambda: None) -> None:
        self.catalogs: dict[str, Object] = {}
        self.records: list[Object] = []
        self.rows: dict[str, list[Object]] | None = None
        """Records by table, in their order; None if this broker keeps none."""
        self.measured: Object = {"arms": []}
        """What the arms of every rollout measured."""
        self.usage: Object = {}
        """What was used, in all namespaces."""
        self.usage_queries: list[dict[str, str]] = []
        self.languages: list[str] = []
        """Languages of the wrappers that were requested, in their order."""
        self.wrappers: Object = {"hash": "one", "files": {"github/__init__.py": "", "catalog.json": GITHUB_CATALOG}}
        self.calls: dict[str, Object] = {}
        self.pending: list[Object] = []
        """Pending approvals, newest first."""
        self.closed: list[str] = []
        self.grant_seconds: list[int] = []
        """How long the grants of those that were closed may be valid."""
        self.closed_files: list[str] = []
        """Executions that were deleted, each time."""
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.senders: set[str] = set()
        self.broken = False
        """Whether it answers with errors alone."""
        self.call_answer: Object = {"toolCalls": {"total": 0}, "approvals": []}
        """The answer about executions that are not in `calls`."""
        self.raw: bytes | None = None
        """The body of every answer, whatever is asked."""
        self.attack: Callable[[web.Request], Play | None] = lambda request: None
        """Returns what answers a request instead of the broker, or None."""
        self.honest = True
        """Whether records are of the requested namespace alone."""
        self.port = 0
        self.files = FakeFiles(self._check)
        """Workspaces and artifacts."""
        self._on_request = on_request
        self._signer = GrantSigner(keys=SandboxKeys(key))
        self._proof_key = broker_key(key)
        self._over = asyncio.Event()

    @asynccontextmanager
    async def running(self, host: str = "127.0.0.1") -> AsyncIterator["FakeBroker"]:
        app = web.Application(middlewares=[self._answer_raw], client_max_size=64 * 1024 * 1024)
        app.router.add_get("/v1/namespaces/{namespace}/catalog", self._catalog)
        app.router.add_get(PROOF_PATH, self._prove)
        app.router.add_get("/v1/audit", self._audit)
        app.router.add_get("/v1/records/rollout-measures", self._measure)
        app.router.add_get("/v1/records/usage", self._measure_usage)
        app.router.add_get("/v1/records/last-uses", self._find_last_uses)
        app.router.add_get("/v1/records/{table}", self._read_rows)
        app.router.add_post("/v1/records", self._add_rows)
        app.router.add_post("/v1/records/find-executions", self._find_executions)
        app.router.add_get("/v1/executions/{uid}", self._calls)
        app.router.add_delete("/v1/executions/{uid}", self._close)
        app.router.add_delete("/v1/executions/{uid}/files", self._close_files)
        app.router.add_get("/v1/namespaces/{namespace}/wrappers", self._wrappers)
        app.router.add_get("/v1/namespaces/{namespace}/approvals", self._approvals)
        self.files.add_routes(app)
        async with TestServer(app, host=host) as server:
            assert server.port is not None
            self.port = server.port
            yield self
            self._over.set()

    @property
    def paths(self) -> list[str]:
        """The path of each request."""
        return [path for path, _ in self.asked]

    def slice(self, *hosts: str, name: str = "mcp-exec-broker", suffix: str = "x1", **conditions: bool) -> Object:
        """An EndpointSlice of the replicas at these hosts, all at this one's port, behind the Service `name`."""
        ports = [{"name": "calls", "port": 1}, {"name": "control", "port": self.port}]
        endpoints = [
            {"addresses": [host], "targetRef": {"uid": f"pod-{host}"}, "conditions": {"ready": True, **conditions}}
            for host in hosts or ("127.0.0.1",)
        ]
        metadata = {"name": f"{name}-{suffix}", "labels": {"kubernetes.io/service-name": name}}
        return {"metadata": metadata, "addressType": "IPv4", "endpoints": endpoints, "ports": ports}

    def _check(self, request: web.Request) -> None:
        try:
            token = request.headers.get("Authorization", "").removeprefix("Bearer ")
            self.senders.add(self._signer.read_service_token(token))
        except GrantError:
            raise web.HTTPUnauthorized from None
        self.asked.append((request.path, dict(request.query)))
        self._on_request()
        if self.broken:
            raise web.HTTPServiceUnavailable

    @web.middleware
    async def _answer_raw(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if (play := self.attack(request)) is not None:
            return await play(request, self._over)
        asked_for_proof = request.path == PROOF_PATH
        return await handler(request) if self.raw is None or asked_for_proof else web.Response(body=self.raw)

    async def _prove(self, request: web.Request) -> web.Response:
        nonce, address = request.query["nonce"], request.remote or ""
        proof = compute_proof(key=self._proof_key, nonce=nonce, address=address)
        return web.json_response({"proof": proof, "address": address})

    async def _catalog(self, request: web.Request) -> web.Response:
        self._check(request)
        found = self.catalogs.get(request.match_info["namespace"], {"hash": "none", "servers": []})
        return web.json_response(found)

    async def _calls(self, request: web.Request) -> web.Response:
        self._check(request)
        return web.json_response(self.calls.get(request.match_info["uid"], self.call_answer))

    async def _close(self, request: web.Request) -> web.Response:
        answer = await self._calls(request)
        self.closed.append(request.match_info["uid"])
        self.grant_seconds.append(int(request.query["grantSeconds"]))
        return answer

    async def _close_files(self, request: web.Request) -> web.Response:
        self._check(request)
        self.closed_files.append(request.match_info["uid"])
        return web.json_response({})

    async def _wrappers(self, request: web.Request) -> web.Response:
        self._check(request)
        self.languages.append(request.query.get("language", "python"))
        is_known = request.query.get("hash") == self.wrappers.get("hash", "")
        return web.json_response({"hash": self.wrappers["hash"]} if is_known else self.wrappers)

    async def _approvals(self, request: web.Request) -> web.Response:
        self._check(request)
        namespace = request.match_info["namespace"]
        found = [item for item in self.pending if item["namespace"] == namespace or not self.honest]
        found = [item for item in found if item.get("caller") == request.query.get("caller", item.get("caller"))]
        return web.json_response({"items": found})

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
            and all(
                record.get(name) == query[name] for name in ("caller", "execution", "tool", "outcome") if name in query
            )
        ]
        end = start + int(query["limit"])
        return web.json_response({"items": found[start:end], "next": str(end) if end < len(found) else None})

    async def _read_rows(self, request: web.Request) -> web.Response:
        self._check(request)
        if self.rows is None:
            raise web.HTTPNotImplemented
        query, start = request.query, request.query.get("cursor", "") or "0"
        if not start.isdigit():
            raise web.HTTPBadRequest
        found = self.rows.get(request.match_info["table"], [])
        found = [row for row in found if row["namespace"] == query["namespace"] or not self.honest]
        found = [row for row in found if row.get("caller") == query.get("caller", row.get("caller"))]
        end = int(start) + int(query["limit"])
        cursor, is_last = str(min(end, len(found))), end >= len(found)
        return web.json_response({"items": found[int(start) : end], "cursor": cursor, "isLast": is_last})

    async def _add_rows(self, request: web.Request) -> web.Response:
        self._check(request)
        if self.rows is None:
            raise web.HTTPNotImplemented
        created = {}
        for table, rows in (await request.json()).items():
            known = self.rows.setdefault(table, [])
            created[table] = sum(row.get("id") not in [each.get("id") for each in known] for row in rows)
            known.extend(rows)
        return web.json_response({"stored": 1, "created": created})

    async def _find_executions(self, request: web.Request) -> web.Response:
        self._check(request)
        stored = {row["uid"] for row in (self.rows or {}).get("executions", [])}
        return web.json_response({"uids": sorted(stored.intersection((await request.json())["uids"]))})

    async def _measure_usage(self, request: web.Request) -> web.Response:
        self._check(request)
        if self.rows is None:
            return web.Response(status=501, text="off")
        self.usage_queries.append(dict(request.query))
        return web.json_response(self.usage)

    async def _find_last_uses(self, request: web.Request) -> web.Response:
        self._check(request)
        if self.rows is None:
            raise web.HTTPNotImplemented
        query, hours = request.query, dict[str, int]()
        for row in self.rows.get("key_uses", []):
            if row["namespace"] == query["namespace"] and query.get("caller") in (None, row["caller"]):
                hours[row["caller"]] = max(row["at"], hours.get(row["caller"], 0))
        return web.json_response({"hours": hours})

    async def _measure(self, request: web.Request) -> web.Response:
        self._check(request)
        if self.rows is None:
            raise web.HTTPNotImplemented
        return web.json_response(self.measured)


@asynccontextmanager
async def running_brokers(api: FakeApiServer, *hosts: str) -> AsyncIterator[list[FakeBroker]]:
    """Serve a replica of the broker at each of these addresses, behind slices of their Service."""
    async with AsyncExitStack() as stack:
        made = []
        for host in hosts:
            made.append(await stack.enter_async_context(FakeBroker(key=SANDBOX_KEY).running(host)))
            api.put(SLICES, made[-1].slice(host, suffix=host))
        yield made


@asynccontextmanager
async def running_broker(api: FakeApiServer) -> AsyncIterator[FakeBroker]:
    """Serve a broker with the catalog, behind a slice of its Service."""
    async with FakeBroker(key=SANDBOX_KEY).running() as made:
        made.catalogs["agents"] = CATALOG
        api.put(SLICES, made.slice())
        yield made
