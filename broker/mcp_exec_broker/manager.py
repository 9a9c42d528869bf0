"""The manager: builds all parts of the broker and runs them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final, Self

import aiohttp

from mcp_exec_broker.access.approvals import Approvals
from mcp_exec_broker.access.limiters import ServerConcurrency
from mcp_exec_broker.access.quotas import CallerQuotas, ExecutionQuotas
from mcp_exec_broker.api.calls import DIRECT_PATH, CallsApi, DirectAuthenticator, GrantAuthenticator
from mcp_exec_broker.api.catalogs import NamespaceCatalogs
from mcp_exec_broker.api.control import ControlApi
from mcp_exec_broker.api.files_auth import FilesAuthenticator
from mcp_exec_broker.api.files_requests import build_flight
from mcp_exec_broker.api.health import BrokerHealth
from mcp_exec_broker.api.records import RecordsApi
from mcp_exec_broker.api.sandbox_files import SandboxApp, SandboxFilesApi
from mcp_exec_broker.api.workspaces import WorkspacesApi
from mcp_exec_broker.calls.call import Offload
from mcp_exec_broker.calls.denials import DenialCounter
from mcp_exec_broker.calls.dispatch import Dispatcher
from mcp_exec_broker.calls.pipeline import CallPipeline
from mcp_exec_broker.calls.response import ResponseBuilder
from mcp_exec_broker.catalog.entry import CatalogDiskCache, OutputInference
from mcp_exec_broker.catalog.status import ToolServerStatusWriter
from mcp_exec_broker.catalog.sync import CatalogSync, ChangedServers, ToolLister
from mcp_exec_broker.catalog.tracker import ToolServerTracker
from mcp_exec_broker.files.store import FilesStore, open_store
from mcp_exec_broker.memory import BytesInFlight
from mcp_exec_broker.metrics import Metrics
from mcp_exec_broker.records.audit_log import AuditLog
from mcp_exec_broker.records.database import find_database
from mcp_exec_broker.records.maintenance import RecordMaintenance
from mcp_exec_broker.records.store import RecordStore
from mcp_exec_broker.scanning.scanner import Scanner
from mcp_exec_broker.scanning.tokenizer import TokenizerCache
from mcp_exec_broker.settings import Settings
from mcp_exec_broker.upstream.addresses import AddressCheck, build_connector
from mcp_exec_broker.upstream.credentials import ClientCredentialsTokens, SecretCache
from mcp_exec_broker.upstream.servers import ToolServerCache, TransportFactory
from mcp_exec_broker.upstream.session_pool import SessionPool
from mcp_exec_broker.validation.values import ArgumentValidator, OutputValidator
from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.broker.grants import GrantSigner
from mcp_exec_common.kube.client import KubeClient
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_common.peers import broker_key
from mcp_exec_common.process.tasks import TaskRegistry

_CLEANUP_SECONDS: Final = 10.0


@dataclass(kw_only=True, eq=False)
class _Catalogs:
    """Parts that keep the catalogs of servers."""

    servers: ToolServerCache
    secrets: SecretCache
    sessions: SessionPool
    inference: OutputInference
    changes: ChangedServers
    sync: CatalogSync

    @classmethod
    def build(
        cls,
        settings: Settings,
        *,
        kube: KubeClient,
        key: bytes,
        http: aiohttp.ClientSession,
        flight: BytesInFlight,
        metrics: Metrics,
    ) -> Self:
        servers, inference, changes = ToolServerCache(), OutputInference(), ChangedServers()
        secrets = SecretCache(
            kube=kube, release_secrets=frozenset(settings.release_secrets), fresh_seconds=settings.secret_seconds
        )

        def refresh(key: ObjectKey, user: str) -> None:
            sync.refresh(key, user)

        sessions = SessionPool(
            secrets=secrets,
            transports=TransportFactory(
                http=http, oauth_tokens=ClientCredentialsTokens(session=http), flight=flight, bridge_key=key
            ),
            metrics=metrics,
            on_stale_tools=refresh,
            connect_timeout_seconds=settings.connect_timeout_seconds,
            idle_seconds=settings.idle_seconds,
            max_personal=settings.max_connections,
        )
        sync = CatalogSync(
            servers=servers,
            lister=ToolLister(sessions=sessions, inference=inference, timeout_seconds=settings.connect_timeout_seconds),
            changes=changes,
            metrics=metrics,
            disk_cache=CatalogDiskCache(settings.audit_file.parent / "catalogs"),
        )
        return cls(servers=servers, secrets=secrets, sessions=sessions, inference=inference, changes=changes, sync=sync)


@dataclass(kw_only=True, eq=False)
class BrokerManager:
    """The parts of a running broker that its ports and its tests use."""

    settings: Settings
    metrics: Metrics
    calls: CallsApi
    sandbox_app: SandboxApp
    control: ControlApi
    files: FilesStore | None
    health: BrokerHealth
    pipeline: CallPipeline
    catalogs: CatalogSync
    sessions: SessionPool
    denials: DenialCounter
    tracker: ToolServerTracker
    status_writer: ToolServerStatusWriter

    @classmethod
    @asynccontextmanager
    async def run(
        cls, settings: Settings, *, kube: KubeClient, approval_kube: KubeClient | None = None
    ) -> AsyncIterator[Self]:
        """Run the broker without its HTTP servers while the context is open.

        `approval_kube` has connections of its own for executions whose calls wait for an approval.
        """
        key = settings.read_sandbox_key()
        async with AsyncExitStack() as stack:
            audit = await stack.enter_async_context(
                AuditLog.open(
                    settings.audit_file, keep_days=settings.audit_keep_days, keep_bytes=settings.audit_keep_bytes
                )
            )
            database = find_database(settings)
            records = None
            if database is not None:
                records = await stack.enter_async_context(
                    RecordStore.open(database, keep_bytes=settings.records_keep_bytes)
                )
            connector = build_connector(
                AddressCheck(allowed=settings.allowed_addresses, api_server=kube.credentials.server)
            )
            http = await stack.enter_async_context(
                aiohttp.ClientSession(
                    connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False, trust_env=False
                )
            )
            manager = cls._build(
                settings,
                kube=kube,
                approval_kube=approval_kube or kube,
                key=key,
                audit=audit,
                records=records,
                http=http,
            )
            for usage in await audit.load_usage():
                manager.pipeline.quotas.restore(usage)
            stack.push_async_callback(manager._close)
            tasks = TaskRegistry(on_failure=manager.health.failed_tasks.append)
            stack.push_async_callback(tasks.close)
            for name, reflector in manager.tracker.reflectors.items():
                tasks.spawn(reflector.run(), name=name)
            tasks.spawn(manager.catalogs.changes.write_all(manager.status_writer.write), name="statuses")
            tasks.spawn(manager._clean_up(), name="cleanup")
            if manager.files is not None:
                tasks.spawn(manager.files.collect_forever(), name="collector of files")
            tasks.spawn(manager.tracker.drop_unused_when_synced(), name="cleanup of the disk cache")
            if records is not None:
                maintenance = RecordMaintenance.build(
                    store=records,
                    calls=audit,
                    keep_days=settings.records_keep_days,
                    registry=manager.metrics.registry,
                )
                stack.push_async_callback(maintenance.copy_the_rest)
                tasks.spawn(maintenance.copy_forever(), name="records of calls")
                tasks.spawn(maintenance.delete_forever(), name="deletion of records")
            yield manager

    @classmethod
    def _build(
        cls,
        settings: Settings,
        *,
        kube: KubeClient,
        approval_kube: KubeClient,
        key: bytes,
        audit: AuditLog,
        records: RecordStore | None,
        http: aiohttp.ClientSession,
    ) -> Self:
        metrics, signer, namespaces = Metrics(), GrantSigner(key=key), frozenset(settings.namespaces)
        in_flight, offload = BytesInFlight(), Offload()
        parts = _Catalogs.build(settings, kube=kube, key=key, http=http, flight=in_flight, metrics=metrics)
        quotas, concurrency, tokenizers = ExecutionQuotas(), ServerConcurrency(), TokenizerCache()
        # the other half of the calls remains for those that wait for nobody
        approvals = Approvals(
            kube=approval_kube,
            attestor=Attestor(key=key),
            registry=metrics.registry,
            max_pending=max(1, settings.max_calls // 2),
        )
        scanner, denials = Scanner(registry=metrics.registry), DenialCounter(audit=audit)
        tracker = ToolServerTracker(
            kube=kube,
            namespaces=settings.namespaces,
            servers=parts.servers,
            catalogs=parts.sync,
            sessions=parts.sessions,
            inference=parts.inference,
            secrets=parts.secrets,
            concurrency=concurrency,
        )
        health = BrokerHealth(reflectors=tracker.reflectors, servers=parts.servers, catalogs=parts.sync, audit=audit)
        pipeline = CallPipeline(
            servers=parts.servers,
            catalogs=parts.sync,
            quotas=quotas,
            caller_quotas=CallerQuotas(),
            validator=ArgumentValidator(),
            approvals=approvals,
            dispatcher=Dispatcher(sessions=parts.sessions, concurrency=concurrency, scanner=scanner),
            responses=ResponseBuilder(
                catalogs=parts.sync,
                inference=parts.inference,
                validator=OutputValidator(),
                scanner=scanner,
                offload=offload,
            ),
            scanner=scanner,
            audit=audit,
            denials=denials,
            metrics=metrics,
            tokenizers=tokenizers,
            offload=offload,
            max_calls=settings.max_calls,
        )
        calls = CallsApi(
            authenticator=GrantAuthenticator(
                signer=signer,
                replica=settings.replica,
                checks_address=settings.check_pod_address,
                get_waiting_seconds=quotas.get_waiting_seconds,
            ),
            pipeline=pipeline,
            namespaces=namespaces,
            max_body_bytes=settings.max_body_bytes,
            in_flight=in_flight,
            offload=offload,
        )
        files, flight = open_store(settings, registry=metrics.registry), build_flight()
        workspaces = None
        files_app = None
        if files is not None:
            workspaces = WorkspacesApi(store=files, namespaces=namespaces, flight=flight)
            authenticator = FilesAuthenticator(
                signer=signer,
                namespaces=namespaces,
                replica=settings.replica,
                checks_address=settings.check_pod_address,
                pending=files.pending,
                get_waiting_seconds=quotas.get_waiting_seconds,
            )
            files_app = SandboxFilesApi(store=files, authenticator=authenticator, flight=flight).build_app()
        return cls(
            settings=settings,
            metrics=metrics,
            calls=calls,
            sandbox_app=SandboxApp(calls=calls, files=files_app),
            files=files,
            control=ControlApi(
                signer=signer,
                proof_key=broker_key(key),
                namespaces=namespaces,
                health=health,
                catalogs=NamespaceCatalogs(servers=parts.servers, catalogs=parts.sync),
                direct_calls=replace(calls, path=DIRECT_PATH, authenticator=DirectAuthenticator(signer=signer)),
                quotas=quotas,
                approvals=approvals,
                tokenizers=tokenizers,
                audit=audit,
                denials=denials,
                workspaces=workspaces,
                records=RecordsApi(store=records, namespaces=namespaces),
                metrics=metrics,
                serves_metrics=settings.metrics,
            ),
            health=health,
            pipeline=pipeline,
            catalogs=parts.sync,
            sessions=parts.sessions,
            denials=denials,
            tracker=tracker,
            status_writer=ToolServerStatusWriter(
                kube=kube, servers=parts.servers, catalogs=parts.sync, inference=parts.inference
            ),
        )

    async def _clean_up(self) -> None:
        while True:
            self.sessions.clean_up()
            await self.denials.write_counts()
            entries = [self.catalogs.get_entry(server.key) for server in self.tracker.servers]
            self.metrics.available.set(sum(entry.available is True for entry in entries))
            self.metrics.tools.set(sum(len(entry.listing.catalog.tools) for entry in entries if entry.listing))
            await asyncio.sleep(_CLEANUP_SECONDS)

    async def _close(self) -> None:
        await self.catalogs.close()
        await self.denials.write_counts()
        await self.sessions.close()
        self.pipeline.scanner.close()
        self.pipeline.offload.close()
