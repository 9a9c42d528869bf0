"""All parts of the broker, built and connected to each other; running while its context stands."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, Self

import aiohttp

from mcp_exec_broker.access import quotas as budgets
from mcp_exec_broker.access.approvals import Approvals
from mcp_exec_broker.api.calls import CallsApi, GrantAuthenticator
from mcp_exec_broker.api.control import ControlApi
from mcp_exec_broker.audit.log import AuditLog
from mcp_exec_broker.calls.denials import DenialCounter
from mcp_exec_broker.calls.dispatch import Dispatcher
from mcp_exec_broker.calls.pipeline import CallPipeline
from mcp_exec_broker.calls.response import ResponseBuilder
from mcp_exec_broker.catalog.disk_cache import CatalogDiskCache
from mcp_exec_broker.catalog.inferred_outputs import OutputInference
from mcp_exec_broker.catalog.status import ToolServerStatusWriter
from mcp_exec_broker.catalog.sync import CatalogSync
from mcp_exec_broker.metrics import Metrics
from mcp_exec_broker.scanning.scanner import Scanner
from mcp_exec_broker.scanning.tokenizers import TokenizerCache
from mcp_exec_broker.settings import Settings
from mcp_exec_broker.upstream.credentials import SecretCache, list_secret_names
from mcp_exec_broker.upstream.oauth import ClientCredentialsTokens
from mcp_exec_broker.upstream.servers import ToolServer, ToolServerCache
from mcp_exec_broker.upstream.session_pool import SessionPool
from mcp_exec_broker.validation.arguments import ArgumentValidator
from mcp_exec_broker.validation.output import OutputValidator
from mcp_exec_common.broker.grants import GrantSigner
from mcp_exec_common.kube.client import KubeClient
from mcp_exec_common.kube.reflector import ObjectKey, Reflector

log = logging.getLogger(__name__)

_SWEEP_SECONDS: Final = 10.0
_WRITE_SECONDS: Final = 0.5
"""After a change: what else changes meanwhile is written with it."""
_FIRST_SECONDS: Final = 20.0
"""After which the broker is ready although some servers have not answered yet."""


@dataclass(kw_only=True, eq=False)
class BrokerManager:
    """The broker."""

    settings: Settings
    calls_app: CallsApi
    control: ControlApi
    calls: CallPipeline
    catalogs: CatalogSync
    connections: SessionPool
    inferences: OutputInference
    secrets: SecretCache
    servers: ToolServerCache
    use: budgets.ServerConcurrency
    metrics: Metrics
    status: ToolServerStatusWriter
    reflectors: dict[str, Reflector]
    scanner: Scanner
    draining: bool = False
    """Whether the process was told to stop."""
    broken: list[str] = field(default_factory=list)
    """What has ended that must not: the process is to be started anew."""
    _began: float = field(default_factory=monotonic)
    _unwritten: set[ObjectKey] = field(default_factory=set)
    _to_write: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    @asynccontextmanager
    async def running(cls, settings: Settings, *, kube: KubeClient) -> AsyncIterator[Self]:
        """The broker at work, but for its HTTP servers."""
        key = settings.sandbox_key_file.read_bytes().strip()
        if not key:
            raise ValueError(f"{settings.sandbox_key_file} is empty")
        async with AsyncExitStack() as stack:
            audit = await stack.enter_async_context(
                AuditLog.opened(
                    settings.audit_file, keep_days=settings.audit_keep_days, keep_bytes=settings.audit_keep_bytes
                )
            )
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60)
            http = await stack.enter_async_context(
                aiohttp.ClientSession(
                    connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False, trust_env=False
                )
            )
            broker = cls._built(settings, kube=kube, key=key, audit=audit, http=http)
            stack.push_async_callback(broker._close)
            group = await stack.enter_async_context(_Tasks(broker.broken.append))
            for what, reflector in broker.reflectors.items():
                group.start(reflector.run(), what)
            group.start(broker._write(), "statuses")
            group.start(broker._sweep(), "sweep")
            group.start(broker._tidy(), "copies of servers that are gone")
            yield broker

    @classmethod
    def _built(
        cls, settings: Settings, *, kube: KubeClient, key: bytes, audit: AuditLog, http: aiohttp.ClientSession
    ) -> Self:
        metrics, servers, signer = Metrics.new(), ToolServerCache(), GrantSigner(key=key)
        inferences = OutputInference()
        secrets = SecretCache(kube=kube, fresh_seconds=settings.secret_seconds)
        connections = SessionPool(
            secrets=secrets,
            tokens=ClientCredentialsTokens(session=http),
            http=http,
            bridge_key=key,
            metrics=metrics,
            connect_timeout_seconds=settings.connect_timeout_seconds,
            idle_seconds=settings.idle_seconds,
            max_personal=settings.max_connections,
        )
        catalogs = CatalogSync(
            servers=servers,
            connections=connections,
            inferences=inferences,
            metrics=metrics,
            copies=CatalogDiskCache(settings.audit_file.parent / "catalogs"),
            timeout_seconds=settings.connect_timeout_seconds,
        )
        accounts, use = budgets.ExecutionQuotas(), budgets.ServerConcurrency()
        approvals = Approvals(kube=kube, registry=metrics.registry)
        scanner, denials = Scanner(registry=metrics.registry), DenialCounter(audit=audit)
        calls = CallPipeline(
            servers=servers,
            catalogs=catalogs,
            accounts=accounts,
            arguments=ArgumentValidator(),
            approvals=approvals,
            sender=Dispatcher(connections=connections, use=use, scanner=scanner),
            answers=ResponseBuilder(
                catalogs=catalogs, inferences=inferences, outputs=OutputValidator(), scanner=scanner
            ),
            scanner=scanner,
            audit=audit,
            denials=denials,
            metrics=metrics,
            vaults=TokenizerCache(),
            max_calls=settings.max_calls,
        )
        served = frozenset(settings.namespaces)
        reflectors = {
            f"ToolServers in {namespace}": servers.reflector(kube=kube, namespace=namespace)
            for namespace in settings.namespaces
        }
        broker = cls(
            settings=settings,
            calls_app=CallsApi(
                grants=GrantAuthenticator(signer=signer),
                calls=calls,
                namespaces=served,
                max_body_bytes=settings.max_body_bytes,
            ),
            control=ControlApi(
                signer=signer,
                namespaces=served,
                servers=servers,
                catalogs=catalogs,
                accounts=accounts,
                approvals=approvals,
                audit=audit,
                denials=denials,
                metrics=metrics,
                missing=lambda: broker.missing(),
                broken=lambda: broker.broken,
            ),
            calls=calls,
            catalogs=catalogs,
            connections=connections,
            inferences=inferences,
            secrets=secrets,
            servers=servers,
            use=use,
            metrics=metrics,
            status=ToolServerStatusWriter(kube=kube, servers=servers, catalogs=catalogs, inferences=inferences),
            reflectors=reflectors,
            scanner=scanner,
        )
        servers.on_change = broker._on_server
        connections.on_lost = catalogs.refresh
        connections.on_tools_changed = catalogs.refresh
        catalogs.on_change = broker._on_listing
        inferences.on_change = broker._on_inference
        return broker

    def missing(self) -> list[str]:
        """What is not known yet: ToolServers, and for a while their tools."""
        if self.draining:
            return ["nothing: it stops"]
        found = [what for what, reflector in self.reflectors.items() if not reflector.synced.is_set()]
        if not found and monotonic() - self._began < _FIRST_SECONDS:
            silent = [each for each in self.servers if self.catalogs.entry(each.key).available is None]
            found = [f"the tools of {each.namespace}/{each.name}" for each in silent]
        return found

    # what changes

    def _on_server(self, before: ToolServer | None, after: ToolServer | None) -> None:
        if after is None:
            if before is not None:
                self._forget(before.key)
            self._keep()
            return
        if before is not None and before.uid != after.uid:
            self._forget(before.key)
            before = None
        self.inferences.take_in(after)
        if before is None or not before.is_like(after):
            self._keep()
            self.connections.retry(after.key)
            self.catalogs.follow(after)

    def _forget(self, key: ObjectKey) -> None:
        self.catalogs.forget(key)
        self.connections.forget(key)
        self.inferences.forget(key)
        self.use.forget(key)

    def _keep(self) -> None:
        """Forgets what belongs to no server any more."""
        if all(reflector.synced.is_set() for reflector in self.reflectors.values()):
            self.catalogs.copies.keep(self.servers)
        self.secrets.keep(
            {
                (each.namespace, name)
                for each in self.servers
                if each.spec is not None
                for name in list_secret_names(each.spec)
            }
        )

    def _on_listing(self, key: ObjectKey) -> None:
        entry = self.catalogs.entry(key)
        if entry.available and entry.known is not None:
            self.inferences.keep(key, (name for name, output in entry.known.declared.items() if output is None))
        self._to_be_written(key)

    def _on_inference(self, key: ObjectKey) -> None:
        self.catalogs.relearned(key)
        self._to_be_written(key)

    def _to_be_written(self, key: ObjectKey) -> None:
        self._unwritten.add(key)
        self._to_write.set()

    async def _write(self) -> None:
        while True:
            await self._to_write.wait()
            self._to_write.clear()
            keys, self._unwritten = self._unwritten, set()
            await asyncio.gather(*(self.status.write(key) for key in keys))
            await asyncio.sleep(_WRITE_SECONDS)

    async def _tidy(self) -> None:
        """Once all servers are known: some may be gone that an earlier process knew."""
        for reflector in self.reflectors.values():
            await reflector.synced.wait()
        self._keep()

    async def _sweep(self) -> None:
        while True:
            self.connections.sweep()
            self.calls.denials.write()
            entries = [self.catalogs.entry(each.key) for each in self.servers]
            self.metrics.available.set(sum(entry.available is True for entry in entries))
            self.metrics.tools.set(sum(len(entry.known.catalog.tools) for entry in entries if entry.known))
            await asyncio.sleep(_SWEEP_SECONDS)

    async def _close(self) -> None:
        await self.catalogs.close()
        await self.calls.close()
        await self.connections.close()
        self.scanner.close()


class _Tasks:
    """Tasks that run until the context ends; `on_failure` is told of one that ends before."""

    def __init__(self, on_failure: Callable[[str], None]) -> None:
        self._on_failure = on_failure
        self._tasks: list[asyncio.Task[Any]] = []

    async def __aenter__(self) -> "_Tasks":
        return self

    async def __aexit__(self, *exception: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Runs it."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s ended: %s", task.get_name(), type(error).__name__, exc_info=error)
            self._on_failure(task.get_name())
