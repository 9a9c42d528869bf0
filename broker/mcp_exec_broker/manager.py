"""The manager: builds all parts of the broker and runs them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Final, Self

import aiohttp

from mcp_exec_broker.core.access.approvals import Approvals
from mcp_exec_broker.core.access.limiters import ServerConcurrency
from mcp_exec_broker.core.access.quotas import CallerQuotas, ExecutionQuotas
from mcp_exec_broker.core.api.calls import DIRECT_PATH, CallsApi, DirectAuthenticator, GrantAuthenticator
from mcp_exec_broker.core.api.catalogs import NamespaceCatalogs
from mcp_exec_broker.core.api.control import ControlApi
from mcp_exec_broker.core.api.health import BrokerHealth
from mcp_exec_broker.core.calls.call import Offload
from mcp_exec_broker.core.calls.denials import DenialCounter
from mcp_exec_broker.core.calls.dispatch import Dispatcher
from mcp_exec_broker.core.calls.pipeline import CallPipeline
from mcp_exec_broker.core.calls.response import ResponseBuilder
from mcp_exec_broker.core.catalog.entry import CatalogDiskCache, OutputInference
from mcp_exec_broker.core.catalog.resources import ToolServerStatusWriter, ToolServerTracker
from mcp_exec_broker.core.catalog.sync import CatalogSync, ChangedServers, ToolLister
from mcp_exec_broker.core.memory import BytesInFlight
from mcp_exec_broker.core.upstream.addresses import AddressCheck, build_connector
from mcp_exec_broker.core.upstream.credentials import ClientCredentialsTokens, SecretCache
from mcp_exec_broker.core.upstream.own_addresses import OwnAddresses
from mcp_exec_broker.core.upstream.servers import ToolServerCache, TransportFactory
from mcp_exec_broker.core.upstream.session_pool import SessionPool
from mcp_exec_broker.core.validation.values import ArgumentValidator, OutputValidator
from mcp_exec_broker.features.files.api.auth import FilesAuthenticator
from mcp_exec_broker.features.files.api.requests import build_flight
from mcp_exec_broker.features.files.api.sandbox import SandboxApp, SandboxFilesApi
from mcp_exec_broker.features.files.api.workspaces import WorkspacesApi
from mcp_exec_broker.features.files.store import open_store
from mcp_exec_broker.features.records.api import RecordsApi
from mcp_exec_broker.features.records.audit.log import AuditLog
from mcp_exec_broker.features.records.database import find_database
from mcp_exec_broker.features.records.maintenance import RecordMaintenance
from mcp_exec_broker.features.records.store import RecordStore
from mcp_exec_broker.features.scanning.scanner import Scanner
from mcp_exec_broker.features.scanning.tokenizer import TokenizerCache
from mcp_exec_broker.metrics import Metrics
from mcp_exec_broker.settings import Settings
from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.broker.grants import GrantSigner
from mcp_exec_common.kube.client import KubeClient
from mcp_exec_common.kube.served import NamespaceReflectors
from mcp_exec_common.process.namespaces import ServedNamespaces
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.sandbox_keys import MountedKeys

_CLEANUP_SECONDS: Final = 10.0


class BrokerManager:
    """The parts of a running broker that its ports and its tests use."""

    def __init__(
        self,
        settings: Settings,
        *,
        kube: KubeClient,
        approval_kube: KubeClient,
        audit: AuditLog,
        records: RecordStore | None,
        http: aiohttp.ClientSession,
        servers: ToolServerCache,
        address_check: AddressCheck,
    ) -> None:
        """Build all parts. Nothing runs yet."""
        self.address_check = address_check
        self.mounted_keys = MountedKeys.read(settings.sandbox_key_folder)
        keys = self.mounted_keys.keys
        self.settings, self.metrics, signer = settings, Metrics(), GrantSigner(keys=keys)
        namespaces, in_flight, offload = ServedNamespaces(settings.namespaces), BytesInFlight(), Offload()
        inference, quotas = OutputInference(), ExecutionQuotas()
        concurrency, tokenizers = ServerConcurrency(), TokenizerCache()
        secrets = SecretCache(
            kube=kube, release_secrets=frozenset(settings.release_secrets), fresh_seconds=settings.secret_seconds
        )
        self.sessions = SessionPool(
            secrets=secrets,
            transports=TransportFactory(
                http=http, oauth_tokens=ClientCredentialsTokens(session=http), flight=in_flight, bridge_keys=keys
            ),
            metrics=self.metrics,
            on_stale_tools=lambda key, user: self.catalogs.refresh(key, user),
            connect_timeout_seconds=settings.connect_timeout_seconds,
            idle_seconds=settings.idle_seconds,
            max_personal=settings.max_connections,
        )
        self.catalogs = CatalogSync(
            servers=servers,
            lister=ToolLister(
                sessions=self.sessions, inference=inference, timeout_seconds=settings.connect_timeout_seconds
            ),
            changes=ChangedServers(),
            metrics=self.metrics,
            disk_cache=CatalogDiskCache(settings.audit_file.parent / "catalogs"),
        )
        self.status_writer = ToolServerStatusWriter(
            kube=kube, servers=servers, catalogs=self.catalogs, inference=inference
        )
        self.tracker = ToolServerTracker(
            kube=kube,
            servers=servers,
            catalogs=self.catalogs,
            sessions=self.sessions,
            inference=inference,
            secrets=secrets,
            concurrency=concurrency,
        )
        self.namespaces = NamespaceReflectors(
            served=namespaces,
            release_namespace=settings.release_namespace,
            build=self.tracker.build_reflectors,
            reflectors=self.tracker.reflectors,
        )
        self.health = BrokerHealth(
            reflectors=self.tracker.reflectors, servers=servers, catalogs=self.catalogs, audit=audit
        )
        # the other half of the calls remains for those that wait for nobody
        approvals = Approvals(
            kube=approval_kube,
            attestor=Attestor(keys=keys),
            registry=self.metrics.registry,
            max_pending=max(1, settings.max_calls // 2),
        )
        scanner, self.denials = Scanner(registry=self.metrics.registry), DenialCounter(audit=audit)
        self.pipeline = CallPipeline(
            servers=servers,
            catalogs=self.catalogs,
            quotas=quotas,
            caller_quotas=CallerQuotas(),
            validator=ArgumentValidator(),
            approvals=approvals,
            dispatcher=Dispatcher(sessions=self.sessions, concurrency=concurrency, scanner=scanner),
            responses=ResponseBuilder(
                catalogs=self.catalogs,
                inference=inference,
                validator=OutputValidator(),
                scanner=scanner,
                offload=offload,
            ),
            scanner=scanner,
            audit=audit,
            denials=self.denials,
            metrics=self.metrics,
            tokenizers=tokenizers,
            offload=offload,
            max_calls=settings.max_calls,
        )
        self.calls = CallsApi(
            authenticator=GrantAuthenticator(
                signer=signer,
                replica=settings.replica,
                checks_address=settings.check_pod_address,
                get_waiting_seconds=quotas.get_waiting_seconds,
            ),
            pipeline=self.pipeline,
            namespaces=namespaces,
            max_body_bytes=settings.max_body_bytes,
            in_flight=in_flight,
            offload=offload,
        )
        self.files, flight = open_store(settings, registry=self.metrics.registry), build_flight()
        workspaces = None
        files_app = None
        if self.files is not None:
            workspaces = WorkspacesApi(store=self.files, namespaces=namespaces, flight=flight)
            authenticator = FilesAuthenticator(
                signer=signer,
                namespaces=namespaces,
                replica=settings.replica,
                checks_address=settings.check_pod_address,
                pending=self.files.pending,
                get_waiting_seconds=quotas.get_waiting_seconds,
            )
            files_app = SandboxFilesApi(store=self.files, authenticator=authenticator, flight=flight).build_app()
        self.sandbox_app = SandboxApp(calls=self.calls, files=files_app)
        self.control = ControlApi(
            signer=signer,
            namespaces=namespaces,
            health=self.health,
            catalogs=NamespaceCatalogs(servers=servers, catalogs=self.catalogs),
            direct_calls=replace(self.calls, path=DIRECT_PATH, authenticator=DirectAuthenticator(signer=signer)),
            quotas=quotas,
            approvals=approvals,
            tokenizers=tokenizers,
            audit=audit,
            denials=self.denials,
            workspaces=workspaces,
            records=RecordsApi(store=records, namespaces=namespaces),
            metrics=self.metrics,
            serves_metrics=settings.metrics,
        )

    @classmethod
    @asynccontextmanager
    async def run(
        cls, settings: Settings, *, kube: KubeClient, approval_kube: KubeClient | None = None
    ) -> AsyncIterator[Self]:
        """Run the broker without its HTTP servers while the context is open.

        `approval_kube` has connections of its own for executions whose calls wait for an approval.
        """
        async with AsyncExitStack() as stack:
            audit = await stack.enter_async_context(
                AuditLog.open(
                    settings.audit_file,
                    keep_days=settings.audit_keep_days,
                    keep_bytes=settings.audit_keep_bytes,
                    grace_seconds=settings.drain_seconds + settings.shutdown_seconds,
                )
            )
            database = find_database(settings)
            records = None
            if database is not None:
                records = await stack.enter_async_context(
                    RecordStore.open(database, keep_bytes=settings.records_keep_bytes)
                )
            servers = ToolServerCache()
            own = OwnAddresses.create(
                kube=kube, namespace=settings.release_namespace, pod_ips=settings.pod_ips, servers=servers
            )
            await stack.enter_async_context(own.following())
            check = AddressCheck(
                allowed=settings.allowed_addresses, api_server=kube.credentials.server, describe_own=own.describe
            )
            http = await stack.enter_async_context(
                aiohttp.ClientSession(
                    connector=build_connector(check),
                    cookie_jar=aiohttp.DummyCookieJar(),
                    auto_decompress=False,
                    trust_env=False,
                )
            )
            manager = cls(
                settings,
                kube=kube,
                approval_kube=approval_kube or kube,
                audit=audit,
                records=records,
                http=http,
                servers=servers,
                address_check=check,
            )
            for usage in await audit.load_usage():
                manager.pipeline.quotas.restore(usage)
            stack.push_async_callback(manager._close)
            tasks = TaskRegistry(on_failure=manager.health.failed_tasks.append)
            stack.push_async_callback(tasks.close)
            tasks.spawn(manager.namespaces.run(settings.mounted_namespaces), name="namespaces")
            tasks.spawn(manager.catalogs.changes.write_all(manager.status_writer.write), name="statuses")
            tasks.spawn(manager._clean_up(), name="cleanup")
            tasks.spawn(manager.mounted_keys.follow(), name="sandbox keys")
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
