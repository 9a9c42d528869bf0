"""All that the routes need, built once a process."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Self

from mcp_exec_common.broker.client import BrokerClient, follow_broker
from mcp_exec_common.kube.client import KubeClient, resource_path
from mcp_exec_common.kube.reflector import Reflector
from mcp_exec_common.supervisor.client import SupervisorClient
from mcp_exec_gateway.auth.api_keys import ApiKeys
from mcp_exec_gateway.auth.authenticator import Authenticator
from mcp_exec_gateway.auth.rate_limits import Rates
from mcp_exec_gateway.auth.service_accounts import Tokens
from mcp_exec_gateway.executions.index import Executions
from mcp_exec_gateway.executions.pools import Pools
from mcp_exec_gateway.executions.submission import Submitter
from mcp_exec_gateway.http.problems import too_many
from mcp_exec_gateway.lifecycle import Lifecycle
from mcp_exec_gateway.metrics import Metrics
from mcp_exec_gateway.settings import Settings
from mcp_exec_gateway.tools.catalogs import Catalogs


@dataclass(kw_only=True)
class Streams:
    """Counts the streams that are open."""

    most: int
    open: int = 0

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Holds a place for one stream."""
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1

    def check(self) -> None:
        """Raises Problem where no place is left."""
        if self.open >= self.most:
            raise too_many(f"{self.open} event streams are open, which is all there may be", retry_after=5)


@dataclass(frozen=True, kw_only=True)
class Dependencies:
    """What the routes work with."""

    settings: Settings
    kube: KubeClient
    sandboxes: SupervisorClient
    executions: Executions
    pools: Pools
    authenticator: Authenticator
    submitter: Submitter
    metrics: Metrics
    streams: Streams
    brokers: BrokerClient | None
    """None where there is no broker."""
    catalogs: Catalogs
    reflectors: dict[str, Reflector]
    """By what they follow, in words."""
    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    rates: Rates = field(default_factory=Rates)

    @classmethod
    @asynccontextmanager
    async def connect(cls, settings: Settings) -> AsyncIterator[Self]:
        """All of it, with the reflectors running; what breaks one of them ends the context by its error."""
        key = settings.sandbox_key_file.read_bytes().strip()
        if not key:
            raise ValueError(f"{settings.sandbox_key_file} is empty")
        async with (
            KubeClient.connect(kubeconfig=settings.kubeconfig) as kube,
            SupervisorClient.connect(key=key) as sandboxes,
        ):
            made = cls.build(settings, kube=kube, sandboxes=sandboxes)
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(reflector.run(), name=what) for what, reflector in made.reflectors.items()]
                yield made
                for task in tasks:
                    task.cancel()

    @classmethod
    def build(cls, settings: Settings, *, kube: KubeClient, sandboxes: SupervisorClient) -> Self:
        """All of it, over these clients; nothing runs yet."""
        executions, pools, keys = Executions(max_waits=settings.max_waits), Pools(), ApiKeys()
        reflectors = {}
        for namespace in settings.namespaces:
            reflectors[f"executions in {namespace}"] = executions.reflector(kube=kube, namespace=namespace)
            reflectors[f"pools in {namespace}"] = pools.reflector(kube=kube, namespace=namespace)
        if settings.api_keys_secret:
            reflectors["API keys"] = Reflector(
                kube=kube,
                path=resource_path("secrets", namespace=settings.release_namespace),
                fields=f"metadata.name={settings.api_keys_secret}",
                on_change=keys.on_change,
                transform=lambda secret: {
                    "metadata": {name: secret["metadata"].get(name, "") for name in ("namespace", "name")}
                },
            )
        brokers = None
        if settings.broker_service:
            brokers, reflectors["the broker's addresses"] = follow_broker(
                kube=kube,
                session=sandboxes.session,
                namespace=settings.release_namespace,
                service=settings.broker_service,
                key=sandboxes.key,
                sender="gateway",
            )
        metrics, streams = Metrics.new(), Streams(most=settings.max_streams)
        metrics.waiters.set_function(lambda: executions.waiting)
        metrics.open_streams.set_function(lambda: streams.open)
        return cls(
            settings=settings,
            kube=kube,
            sandboxes=sandboxes,
            executions=executions,
            pools=pools,
            authenticator=Authenticator(
                keys=keys,
                tokens=Tokens.of(kube=kube, audience=settings.audience),
                namespaces=frozenset(settings.namespaces),
            ),
            submitter=Submitter(kube=kube, executions=executions, pools=pools),
            metrics=metrics,
            streams=streams,
            brokers=brokers,
            catalogs=Catalogs(brokers=brokers),
            reflectors=reflectors,
        )

    def missing(self) -> list[str]:
        """What is not known yet; nothing can be answered for sure until this is empty."""
        return [what for what, reflector in self.reflectors.items() if not reflector.synced.is_set()]
