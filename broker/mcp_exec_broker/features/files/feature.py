"""Files as a feature of the broker: workspaces and artifacts on both ports, if the installation stores any."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Self

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mcp_exec_broker.core.feature import Authenticate, Feature, Foundation
from mcp_exec_broker.features.files.api.auth import FilesAuthenticator
from mcp_exec_broker.features.files.api.requests import build_flight
from mcp_exec_broker.features.files.api.sandbox import FILES_PREFIX, SandboxFilesApi
from mcp_exec_broker.features.files.api.workspaces import WorkspacesApi, build_disabled_routes
from mcp_exec_broker.features.files.store import open_store
from mcp_exec_common.process.tasks import TaskRegistry


class FilesFeature(Feature):
    """Stores files. Without a store, its routes answer that there is none."""

    def __init__(self, foundation: Foundation) -> None:
        settings = foundation.settings
        self.store = open_store(settings, network=foundation.network, registry=foundation.metrics.registry)
        self._workspaces: WorkspacesApi | None = None
        if self.store is not None:
            flight = build_flight()
            self._workspaces = WorkspacesApi(store=self.store, namespaces=foundation.namespaces, flight=flight)
            authenticator = FilesAuthenticator(
                signer=foundation.signer,
                namespaces=foundation.namespaces,
                replica=settings.replica,
                checks_address=settings.check_pod_address,
                pending=self.store.pending,
                get_waiting_seconds=foundation.quotas.get_waiting_seconds,
            )
            sandbox = SandboxFilesApi(store=self.store, authenticator=authenticator, flight=flight)
            self.sandbox_apps = {FILES_PREFIX: sandbox.build_app()}

    @classmethod
    @asynccontextmanager
    async def open(cls, foundation: Foundation) -> AsyncIterator[Self]:
        """Open the store that the settings describe."""
        yield cls(foundation)

    def build_routes(self, authenticate: Authenticate) -> Sequence[Route]:
        """Return the routes for gateway and operator."""
        build = self._workspaces.build_routes if self._workspaces else build_disabled_routes
        close = Route("/v1/executions/{uid}/files", authenticate(self._close_files), methods=["DELETE"])
        return [close, *build(authenticate)]

    def start(self, tasks: TaskRegistry) -> None:
        """Start the collector."""
        if self.store is not None:
            tasks.spawn(self.store.collect_forever(), name="collector of files")

    async def close_execution(self, uid: str, *, grant_seconds: int) -> None:
        """Forget what an execution has uploaded and not committed, and refuse further uploads."""
        if self.store is not None:
            self.store.pending.close(uid)

    async def _close_files(self, request: Request) -> Response:
        """Close an execution without tools."""
        await self.close_execution(request.path_params["uid"], grant_seconds=0)
        return JSONResponse({})
