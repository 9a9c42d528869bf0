"""The manager: builds all parts of the broker and runs them."""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Final, Self

from mcp_exec_broker.core.access.approvals import Approvals
from mcp_exec_broker.core.access.limiters import ServerConcurrency
from mcp_exec_broker.core.access.quotas import CallerQuotas
from mcp_exec_broker.core.api.calls import DIRECT_PATH, CallsApi, DirectAuthenticator, GrantAuthenticator, SandboxApp
from mcp_exec_broker.core.api.catalogs import NamespaceCatalogs
from mcp_exec_broker.core.api.control import ControlApi
from mcp_exec_broker.core.api.health import BrokerHealth
from mcp_exec_broker.core.calls.audit import CallAudit
from mcp_exec_broker.core.calls.call import Offload
from mcp_exec_broker.core.calls.denials import DenialCounter
from mcp_exec_broker.core.calls.dispatch import Dispatcher
from mcp_exec_broker.core.calls.pipeline import CallPipeline
from mcp_exec_broker.core.calls.response import ResponseBuilder
from mcp_exec_broker.core.calls.scanner import CallScanner, NoScanner
from mcp_exec_broker.core.catalog.entry import CatalogDiskCache, OutputInference
from mcp_exec_broker.core.catalog.resources import ToolServerStatusWriter, ToolServerTracker
from mcp_exec_broker.core.catalog.sync import CatalogSync, ChangedServers, ToolLister
from mcp_exec_broker.core.feature import Feature, Foundation, OpenFeature
from mcp_exec_broker.core.memory import BytesInFlight
from mcp_exec_broker.core.upstream.authorities import BundleCache
from mcp_exec_broker.core.upstream.credentials import ClientCredentialsTokens, SecretCache
from mcp_exec_broker.core.upstream.own_addresses import OwnAddresses
from mcp_exec_broker.core.upstream.servers import ToolServerCache, TransportFactory
from mcp_exec_broker.core.upstream.session_pool import SessionPool
from mcp_exec_broker.core.validation.values import ArgumentValidator, OutputValidator
from mcp_exec_broker.features import FEATURES
from mcp_exec_broker.settings import Settings
from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.kube.client import KubeClient
from mcp_exec_common.kube.served import NamespaceReflectors
from mcp_exec_common.process.outgoing_client import OutgoingClient
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.util.addresses import AddressCheck

log = logging.getLogger(__name__)

_CLEANUP_SECONDS: Final = 10.0


class BrokerManager:
    """The parts of a running broker that its ports and its tests use."""

    def __init__(
        self,
        foundation: Foundation,
        *,
        features: Mapping[str, Feature],
        kube: KubeClient,
        approval_kube: KubeClient,
        client: OutgoingClient,
        servers: ToolServerCache,
        address_check: AddressCheck,
    ) -> None:
        """Build the core, which reports to the features. Nothing runs yet."""
        self.address_check, self.features = address_check, features
        self.mounted_keys, self.network, self.metrics = foundation.mounted_keys, foundation.network, foundation.metrics
        self.settings = settings = foundation.settings
        keys, signer = foundation.mounted_keys.keys, foundation.signer
        namespaces, quotas = foundation.namespaces, foundation.quotas
        audit, scanner = _find_audit(features.values()), _find_scanner(features.values())
        in_flight, offload, inference, concurrency = BytesInFlight(), Offload(), OutputInference(), ServerConcurrency()
        secrets = SecretCache(
            kube=kube, release_secrets=frozenset(settings.release_secrets), fresh_seconds=settings.secret_seconds
        )
        self.sessions = SessionPool(
            secrets=secrets,
            bundles=BundleCache(kube=kube, network=foundation.network, fresh_seconds=settings.secret_seconds),
            transports=TransportFactory(
                client=client, oauth_tokens=ClientCredentialsTokens(client=client), flight=in_flight, bridge_keys=keys
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
            reflectors=self.tracker.reflectors, servers=servers, catalogs=self.catalogs, features=features.values()
        )
        # the other half of the calls remains for those that wait for nobody
        approvals = Approvals(
            kube=approval_kube,
            attestor=Attestor(keys=keys),
            registry=self.metrics.registry,
            max_pending=max(1, settings.max_calls // 2),
        )
        self.denials = DenialCounter(audit=audit)
        self.pipeline = CallPipeline(
            servers=servers,
            catalogs=self.catalogs,
            quotas=quotas,
            caller_quotas=CallerQuotas(),
            validator=ArgumentValidator(),
            approvals=approvals,
            dispatcher=Dispatcher(sessions=self.sessions, concurrency=concurrency),
            responses=ResponseBuilder(
                catalogs=self.catalogs,
                inference=inference,
                validator=OutputValidator(),
                offload=offload,
            ),
            scanner=scanner,
            audit=audit,
            denials=self.denials,
            metrics=self.metrics,
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
        apps = {prefix: app for feature in features.values() for prefix, app in feature.sandbox_apps.items()}
        self.sandbox_app = SandboxApp(calls=self.calls, others=apps)
        self.control = ControlApi(
            signer=signer,
            namespaces=namespaces,
            health=self.health,
            catalogs=NamespaceCatalogs(servers=servers, catalogs=self.catalogs),
            direct_calls=replace(self.calls, path=DIRECT_PATH, authenticator=DirectAuthenticator(signer=signer)),
            quotas=quotas,
            approvals=approvals,
            denials=self.denials,
            features=features.values(),
            metrics=self.metrics,
            serves_metrics=settings.metrics,
        )

    @classmethod
    @asynccontextmanager
    async def run(
        cls,
        settings: Settings,
        *,
        kube: KubeClient,
        approval_kube: KubeClient | None = None,
        features: Mapping[str, OpenFeature] = FEATURES,
    ) -> AsyncIterator[Self]:
        """Run the broker without its HTTP servers while the context is open.

        `approval_kube` has connections of its own for executions whose calls wait for an approval.
        """
        foundation = Foundation.build(settings)
        async with AsyncExitStack() as stack:
            opened = {name: await stack.enter_async_context(open(foundation)) for name, open in features.items()}
            servers = ToolServerCache()
            own = OwnAddresses.create(
                kube=kube, namespace=settings.release_namespace, pod_ips=settings.pod_ips, servers=servers
            )
            await stack.enter_async_context(own.following())
            check = AddressCheck(
                allowed=settings.allowed_addresses, api_server=kube.credentials.server, describe_own=own.describe
            )
            client = await stack.enter_async_context(OutgoingClient.open(check=check, network=foundation.network))
            manager = cls(
                foundation,
                features=opened,
                kube=kube,
                approval_kube=approval_kube or kube,
                client=client,
                servers=servers,
                address_check=check,
            )
            for usage in await manager.pipeline.audit.load_usage():
                manager.pipeline.quotas.restore(usage)
            stack.push_async_callback(manager._close)
            tasks = TaskRegistry(on_failure=manager.health.failed_tasks.append)
            stack.push_async_callback(tasks.close)
            tasks.spawn(manager.namespaces.run(settings.mounted_namespaces), name="namespaces")
            tasks.spawn(manager.catalogs.changes.write_all(manager.status_writer.write), name="statuses")
            tasks.spawn(manager._clean_up(), name="cleanup")
            tasks.spawn(manager.mounted_keys.follow(), name="sandbox keys")
            tasks.spawn(manager.network.follow(), name="company's network")
            tasks.spawn(manager.tracker.drop_unused_when_synced(), name="cleanup of the disk cache")
            for feature in opened.values():
                feature.start(tasks)
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
        self.pipeline.offload.close()


def _find_audit(features: Collection[Feature]) -> CallAudit:
    found = next((feature.audit for feature in features if feature.audit is not None), None)
    if found is None:
        log.warning("no feature keeps records of calls: the audit has log lines only, and a restart resets quotas")
    return found or CallAudit()


def _find_scanner(features: Collection[Feature]) -> CallScanner:
    found = next((feature.scanner for feature in features if feature.scanner is not None), None)
    if found is None:
        log.warning("no feature scans calls: those that ToolServers require to be scanned are denied")
    return found or NoScanner()
