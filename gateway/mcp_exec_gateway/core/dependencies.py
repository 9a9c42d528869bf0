"""Everything that the routes use, built once per process, and how FastAPI passes it to them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Final, Self, TypeVar, cast

from fastapi import APIRouter, Depends
from fastapi.security import HTTPAuthorizationCredentials
from starlette.requests import Request

from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.broker.client import BrokerClient, follow_broker
from mcp_exec_common.kube.client import KubeClient
from mcp_exec_common.kube.reflector import Reflector
from mcp_exec_common.kube.served import NamespaceReflectors
from mcp_exec_common.process.mounts import MountedFolder
from mcp_exec_common.process.namespaces import ServedNamespaces
from mcp_exec_common.sandbox_keys import MountedKeys
from mcp_exec_common.supervisor.client import SupervisorClient
from mcp_exec_gateway.core.auth.api_keys import ApiKeyStore
from mcp_exec_gateway.core.auth.callers import BEARER, Authenticator, Caller, CallerResolver, Verb
from mcp_exec_gateway.core.auth.key_warnings import KeyWarnings
from mcp_exec_gateway.core.auth.kubernetes_tokens import KubernetesTokens
from mcp_exec_gateway.core.auth.rate_limits import PeerLimiter, RateLimiter
from mcp_exec_gateway.core.auth.rules import AccessRules
from mcp_exec_gateway.core.executions.deletion import ExecutionDeleter
from mcp_exec_gateway.core.executions.index import ExecutionIndex
from mcp_exec_gateway.core.executions.limits import StoredExecutions
from mcp_exec_gateway.core.executions.lists import ExecutionLists
from mcp_exec_gateway.core.executions.service import ExecutionService
from mcp_exec_gateway.core.executions.submission import Submitter
from mcp_exec_gateway.core.extensions import Extensions
from mcp_exec_gateway.core.http.access_log import ShutdownSignals
from mcp_exec_gateway.core.http.limits import CallerThreads, MemoryBudget, RequestSlots, StreamSlots
from mcp_exec_gateway.core.http.problems import HttpProblem
from mcp_exec_gateway.core.openapi import Examples
from mcp_exec_gateway.core.pools import PoolCache
from mcp_exec_gateway.metrics import Metrics
from mcp_exec_gateway.settings import Settings

_SHORT_REQUESTS: Final = 1024
"""Requests without a wait at once, which watch their execution as long as the API server takes to answer."""
_FEATURES: Final = "mcp_exec_gateway.features."

Service = TypeVar("Service")


@dataclass(frozen=True, kw_only=True)
class Feature:
    """A feature as the application registers it."""

    build: Callable[["Dependencies"], None]
    """Builds its services from the core's, adds them by `Dependencies.add`, and adds to `Dependencies.extensions`."""
    routers: Sequence[APIRouter] = ()
    examples: Examples = field(default_factory=dict)
    """Examples of the bodies of its routes."""


class Dependencies:
    """The objects that the routes use: those of the core as attributes, those of features by `get` and `find`."""

    def __init__(
        self, settings: Settings, *, kube: KubeClient, supervisors: SupervisorClient, features: Collection[Feature]
    ) -> None:
        """Build everything with these clients. The caller runs the reflectors and the features' tasks."""
        self.settings, self.kube, self.supervisors = settings, kube, supervisors
        self.features, self.extensions = tuple(features), Extensions()
        self._services: dict[type, object] = {}
        self.shutdown, served = ShutdownSignals(), ServedNamespaces(settings.namespaces)
        self.attestor = Attestor(keys=supervisors.keys, accounts_proven=settings.accounts_proven)
        self.memory, self.threads = MemoryBudget(), CallerThreads()
        self.index = ExecutionIndex(
            # requests that wait have slots of their own, and must not hold up those that do not
            max_waits=settings.max_waits + 2 * settings.max_streams + _SHORT_REQUESTS,
            attestor=self.attestor,
            memory=self.memory,
            lists=ExecutionLists(served=served),
            stored=StoredExecutions(max_stored=settings.max_stored, max_stored_bytes=settings.max_stored_bytes),
            observers=self.extensions.observers,
        )
        self.pools, self.keys = PoolCache(), ApiKeyStore()
        self.extensions.caches |= {"executions": self.index, "pools": self.pools}
        reflectors: dict[str, Reflector] = {}
        if settings.api_keys_secret:
            self.extensions.reflectors["API keys"] = self.keys.build_reflector(
                kube=kube, namespace=settings.release_namespace, name=settings.api_keys_secret
            )
            self.extensions.tasks["warnings of API keys"] = KeyWarnings(
                kube=kube, namespace=settings.release_namespace, secret=settings.api_keys_secret, keys=self.keys
            ).run
        self.broker: BrokerClient | None = None
        """None if no broker is configured."""
        if settings.broker_service:
            self.broker, self.extensions.reflectors["addresses of the broker"] = follow_broker(
                kube=kube,
                session=supervisors.broker_session,
                namespace=settings.release_namespace,
                service=settings.broker_service,
                keys=supervisors.keys,
                sender="gateway",
            )
        self.streams = StreamSlots(max_total=settings.max_streams, max_each=settings.max_streams_per_caller)
        rules = AccessRules(served=served)
        if (folder := settings.rules_folder) is not None:
            self.extensions.tasks["access rules"] = lambda: rules.follow(MountedFolder(path=folder))
        self.metrics = Metrics(count_waits=lambda: self.index.wait_count, count_streams=lambda: self.streams.open)
        self.callers = CallerResolver(
            authenticator=Authenticator(
                keys=self.keys,
                tokens=KubernetesTokens.create(
                    kube=kube, audience=settings.audience, people_audience=settings.people_audience
                ),
                sources=self.extensions.token_sources,
                rules=rules,
                namespaces=served,
            ),
            rate_limiter=RateLimiter(),
            peer_limiter=PeerLimiter(per_minute=settings.anonymous_requests_per_minute),
            trusted_proxies=settings.trusted_proxies,
            challenges=self.extensions.challenges,
            key_observers=self.extensions.key_observers,
            metrics=self.metrics,
            reflectors=reflectors,
        )
        self.executions = ExecutionService(
            kube=kube,
            index=self.index,
            pools=self.pools,
            submitter=Submitter(kube=kube, index=self.index, pools=self.pools, attestor=self.attestor),
            metrics=self.metrics,
            max_wait_seconds=settings.max_wait_seconds,
            wait_slots=RequestSlots(
                kind="waits",
                max_total=settings.max_waits,
                max_each=settings.max_waits_per_caller,
                retry_seconds=1,
            ),
            admissions=self.extensions.admissions,
        )
        self.deleter = ExecutionDeleter(kube=kube, executions=self.executions, deletions=self.extensions.deletions)
        for feature in self.features:
            feature.build(self)
        # last, because it builds the reflectors of all caches, those of features included
        self.namespaces = NamespaceReflectors(
            served=served,
            release_namespace=settings.release_namespace,
            build=lambda namespace: {
                f"{kind} in {namespace}": cache.build_reflector(kube=kube, namespace=namespace)
                for kind, cache in self.extensions.caches.items()
            },
            reflectors=reflectors,
        )
        reflectors.update(self.extensions.reflectors)

    def add(self, service: object) -> None:
        """Keep what a feature has built: one object of each class."""
        self._services[type(service)] = service

    def find(self, kind: type[Service]) -> Service | None:
        """Return what a feature has built, or None if the gateway runs without the feature."""
        return cast("Service | None", self._services.get(kind))

    def get(self, kind: type[Service]) -> Service:
        """Return what a feature has built. Raises HttpProblem, a 404, if the gateway runs without the feature."""
        found = self.find(kind)
        if found is None:
            feature = kind.__module__.removeprefix(_FEATURES).partition(".")[0]
            raise HttpProblem("not-found", 404, f"this gateway runs without {feature}")
        return found

    @classmethod
    @asynccontextmanager
    async def connect(cls, settings: Settings, *, features: Collection[Feature]) -> AsyncIterator[Self]:
        """Build everything and run the reflectors. A reflector that fails ends the context with its error."""
        keys = MountedKeys.read(settings.sandbox_key_folder)
        async with (
            KubeClient.connect(kubeconfig=settings.kubeconfig) as kube,
            SupervisorClient.connect(keys=keys.keys) as supervisors,
        ):
            dependencies = cls(settings, kube=kube, supervisors=supervisors, features=features)
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(reflector.run(), name=description)
                    for description, reflector in dependencies.extensions.reflectors.items()
                ]
                tasks.append(
                    group.create_task(dependencies.namespaces.run(settings.mounted_namespaces), name="namespaces")
                )
                tasks += [group.create_task(run(), name=name) for name, run in dependencies.extensions.tasks.items()]
                tasks.append(group.create_task(keys.follow(), name="sandbox keys"))
                yield dependencies
                for task in tasks:
                    task.cancel()


def build_stream_slots(settings: Settings, kind: str) -> RequestSlots:
    """Build the slots of streams that stay open, by caller."""
    return RequestSlots(kind=kind, max_total=settings.max_streams, max_each=settings.max_streams_per_caller)


# The functions below are coroutines although they do not wait: FastAPI runs plain functions in a thread.


async def get_dependencies(request: Request) -> Dependencies:
    """Return the application's dependencies."""
    return cast(Dependencies, request.app.state.dependencies)


Injected = Annotated[Dependencies, Depends(get_dependencies)]
"""Type of a route's parameter that receives the application's dependencies."""


def authorize(verb: Verb) -> Callable[..., Awaitable[Caller]]:
    """Return a FastAPI dependency: the request's caller, who may do this."""

    async def resolve_caller(
        request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)]
    ) -> Caller:
        dependencies = await get_dependencies(request)
        return await dependencies.callers.resolve(request, credentials, verb)

    return resolve_caller


CreateCaller = Annotated[Caller, Depends(authorize("create"))]
GetCaller = Annotated[Caller, Depends(authorize("get"))]
ListCaller = Annotated[Caller, Depends(authorize("list"))]
PatchCaller = Annotated[Caller, Depends(authorize("patch"))]
