"""What features may add to the broker. The core calls it and imports no feature."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from mcp_exec_broker.core.access.quotas import ExecutionQuotas
from mcp_exec_broker.core.calls.audit import CallAudit
from mcp_exec_broker.core.calls.scanner import CallScanner
from mcp_exec_broker.metrics import Metrics
from mcp_exec_broker.settings import Settings
from mcp_exec_common.broker.grants import GrantSigner
from mcp_exec_common.process.company_network import CompanyNetwork
from mcp_exec_common.process.namespaces import ServedNamespaces
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.sandbox_keys import MountedKeys

Handler = Callable[[Request], Awaitable[Response]]
Authenticate = Callable[[Handler], Handler]
"""Wraps a handler of the control port: only requests with a service token reach it."""


@dataclass(frozen=True, kw_only=True)
class Foundation:
    """What both core and features are built from."""

    settings: Settings
    mounted_keys: MountedKeys
    namespaces: ServedNamespaces
    signer: GrantSigner
    network: CompanyNetwork
    """Authorities and proxies of connections to hosts outside of the release."""
    metrics: Metrics = field(default_factory=Metrics)
    quotas: ExecutionQuotas = field(default_factory=ExecutionQuotas)

    @classmethod
    def build(cls, settings: Settings) -> "Foundation":
        """Build the parts from settings and mounted keys."""
        mounted_keys = MountedKeys.read(settings.sandbox_key_folder)
        return cls(
            settings=settings,
            mounted_keys=mounted_keys,
            namespaces=ServedNamespaces(settings.namespaces),
            signer=GrantSigner(keys=mounted_keys.keys),
            network=settings.read_network(),
        )


class Feature:
    """What one feature adds to the broker. Each point has a default, which adds nothing."""

    audit: CallAudit | None = None
    """Stores the record of each call."""
    scanner: CallScanner | None = None
    """Scans arguments and results."""
    sandbox_apps: Mapping[str, ASGIApp] = {}
    """Applications on the port for sandboxes, by the beginnings of their paths."""

    @property
    def failure(self) -> str:
        """Why the process must be restarted; empty if it works."""
        return ""

    def build_routes(self, authenticate: Authenticate) -> Sequence[Route]:
        """Return its routes on the control port."""
        return ()

    def start(self, tasks: TaskRegistry) -> None:
        """Start background tasks. They end before the feature is closed."""

    async def close_execution(self, uid: str, *, grant_seconds: int) -> None:
        """Apply that an execution has ended, whose grants are valid for so many seconds at most."""


OpenFeature = Callable[[Foundation], AbstractAsyncContextManager[Feature]]
"""Builds a feature, which is closed at the end of the context."""
