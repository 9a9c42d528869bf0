"""The control port: what operator and gateway ask, and health and metrics. Sandboxes can't reach it."""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

import mcp_exec_tools
from mcp_exec_broker.access.approvals import Approvals
from mcp_exec_broker.access.quotas import ExecutionQuotas
from mcp_exec_broker.audit.log import AuditLog
from mcp_exec_broker.calls.denials import DenialCounter
from mcp_exec_broker.catalog.entry import CatalogEntry
from mcp_exec_broker.catalog.sync import CatalogSync
from mcp_exec_broker.metrics import Metrics
from mcp_exec_broker.upstream.servers import ToolServer, ToolServerCache
from mcp_exec_common.broker.client import ExecutionCalls
from mcp_exec_common.broker.grants import GrantError, GrantSigner
from mcp_exec_tools.catalog import Catalog

_AUDIT_TEXTS: Final = ("namespace", "execution", "tool", "outcome", "since", "until", "cursor")
_MAX_AUDIT: Final = 1000
_DESCRIPTION: Final = 500
_GENERATOR: Final = Path(mcp_exec_tools.__file__).parent
"""All that makes wrappers of catalogs."""

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(kw_only=True, eq=False)
class ControlApi:
    """Answers on the control port."""

    signer: GrantSigner
    namespaces: frozenset[str]
    servers: ToolServerCache
    catalogs: CatalogSync
    accounts: ExecutionQuotas
    approvals: Approvals
    audit: AuditLog
    denials: DenialCounter
    metrics: Metrics
    missing: Callable[[], list[str]]
    """What is not known yet."""
    broken: Callable[[], list[str]] = list
    """What has ended that must not."""
    _wrappers: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    """By namespace: the hash that they were made of, and the answer."""

    def app(self) -> Starlette:
        """The application."""
        return Starlette(
            routes=[
                Route("/healthz", self._healthz),
                Route("/readyz", self._readyz),
                Route("/metrics", self._metrics),
                Route("/v1/executions/{uid}", self._guarded(self._execution), methods=["GET", "DELETE"]),
                Route("/v1/namespaces/{namespace}/catalog", self._guarded(self._catalog)),
                Route("/v1/namespaces/{namespace}/wrappers", self._guarded(self._files)),
                Route("/v1/audit", self._guarded(self._audit)),
            ]
        )

    async def _healthz(self, request: Request) -> Response:
        broken = self.broken()
        return PlainTextResponse(f"ended: {', '.join(broken)}\n" if broken else "ok\n", 503 if broken else 200)

    async def _readyz(self, request: Request) -> Response:
        missing = self.missing()
        return PlainTextResponse(
            f"not known yet: {', '.join(missing)}\n" if missing else "ok\n", 503 if missing else 200
        )

    async def _metrics(self, request: Request) -> Response:
        return Response(generate_latest(self.metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    def _guarded(self, handler: Handler) -> Handler:
        async def guarded(request: Request) -> Response:
            scheme, _, token = request.headers.get("authorization", "").partition(" ")
            try:
                if scheme.lower() != "bearer":
                    raise GrantError("a badge is needed: Authorization: Bearer BADGE")
                self.signer.read_service_token(token)
            except GrantError as error:
                return PlainTextResponse(f"{error}\n", 401, headers={"WWW-Authenticate": "Bearer"})
            return await handler(request)

        return guarded

    async def _execution(self, request: Request) -> Response:
        uid = request.path_params["uid"]
        if request.method == "DELETE":
            self.accounts.close(uid)
            self.approvals.close(uid)
            self.denials.write(uid)
        account = self.accounts.find(uid)
        known = ExecutionCalls(approvals=self.approvals.of(uid))
        if account is not None:
            known = known.model_copy(update={"tool_calls": account.tool_calls})
        return JSONResponse(known.to_api())

    async def _catalog(self, request: Request) -> Response:
        namespace = request.path_params["namespace"]
        if namespace not in self.namespaces:
            return _not_served(namespace)
        found = [(server, self.catalogs.entry(server.key)) for server in self.servers.of(namespace)]
        return JSONResponse({"hash": _hash(_known(found)), "servers": [_server(*each) for each in found]})

    async def _files(self, request: Request) -> Response:
        namespace = request.path_params["namespace"]
        if namespace not in self.namespaces:
            return _not_served(namespace)
        catalogs = _known([(server, self.catalogs.entry(server.key)) for server in self.servers.of(namespace)])
        wanted = _hash(catalogs)
        made, body = self._wrappers.get(namespace, ("", b""))
        if made != wanted:
            body = await asyncio.to_thread(_wrappers, wanted, catalogs)
            self._wrappers[namespace] = (wanted, body)
        return Response(body, media_type="application/json")

    async def _audit(self, request: Request) -> Response:
        given = request.query_params
        if unknown := given.keys() - {*_AUDIT_TEXTS, "limit"}:
            return PlainTextResponse(f"unknown: {', '.join(sorted(unknown))}\n", 400)
        try:
            limit = min(max(int(given.get("limit", "100")), 1), _MAX_AUDIT)
            found = await self.audit.query(**{name: given.get(name, "") for name in _AUDIT_TEXTS}, limit=limit)
        except ValueError as error:
            return PlainTextResponse(f"{error}\n", 400)
        return JSONResponse(found)


def _not_served(namespace: str) -> Response:
    return PlainTextResponse(f"namespace {namespace[:100]!r} is not served here\n", 404)


def _known(found: Iterable[tuple[ToolServer, CatalogEntry]]) -> list[Catalog]:
    return [entry.known.catalog for _, entry in found if entry.known is not None]


@lru_cache
def compute_folder_digest(folder: Path) -> str:
    """What tells a folder's files from others, by their names and contents."""
    digest = hashlib.sha256()
    for path in sorted(each for each in folder.rglob("*") if each.is_file() and "__pycache__" not in each.parts):
        digest.update(f"{path.relative_to(folder)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _hash(catalogs: Iterable[Catalog]) -> str:
    # another release may make other wrappers of the same catalogs
    text = json.dumps([compute_folder_digest(_GENERATOR), *(catalog.hash for catalog in catalogs)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _server(server: ToolServer, entry: CatalogEntry) -> dict[str, Any]:
    tools = entry.known.catalog.tools if entry.known is not None else ()
    return {
        "server": server.name,
        "available": entry.available is True,
        "description": entry.identity[:_DESCRIPTION],
        "tools": [tool.to_json() for tool in tools],
    }


def _wrappers(hash: str, catalogs: list[Catalog]) -> bytes:
    from mcp_exec_tools.wrappers import build_files, format_catalog

    files = {**build_files(catalogs), "catalog.json": format_catalog(catalogs)}
    return json.dumps({"hash": hash, "files": files}, separators=(",", ":")).encode()
