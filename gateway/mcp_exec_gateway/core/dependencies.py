"""Everything that the routes use, built once per process, and how FastAPI passes it to them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Final, Protocol, Self, cast

from fastapi import Depends
from fastapi.security import HTTPAuthorizationCredentials
from starlette.requests import Request

from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.broker.client import BrokerClient, follow_broker
from mcp_exec_common.broker.direct_calls import DirectCallClient
from mcp_exec_common.broker.records import RecordsClient
from mcp_exec_common.kube.client import KubeClient
from mcp_exec_common.kube.reflector import Reflector
from mcp_exec_common.kube.served import NamespaceReflectors
from mcp_exec_common.process.namespaces import ServedNamespaces
from mcp_exec_common.sandbox_keys import MountedKeys
from mcp_exec_common.supervisor.client import SupervisorClient
from mcp_exec_gateway.core.auth.api_keys import ApiKeyStore
from mcp_exec_gateway.core.auth.callers import BEARER, Authenticator, Caller, CallerResolver, Verb
from mcp_exec_gateway.core.auth.rate_limits import PeerLimiter, RateLimiter
from mcp_exec_gateway.core.auth.service_accounts import ServiceAccountTokens
from mcp_exec_gateway.core.executions.deletion import ExecutionDeleter
from mcp_exec_gateway.core.executions.index import ExecutionIndex
from mcp_exec_gateway.core.executions.limits import StoredExecutions
from mcp_exec_gateway.core.executions.lists import ExecutionLists
from mcp_exec_gateway.core.executions.service import ExecutionService
from mcp_exec_gateway.core.executions.submission import Submitter
from mcp_exec_gateway.core.http.access_log import ShutdownSignals
from mcp_exec_gateway.core.http.limits import MemoryBudget, RequestSlots
from mcp_exec_gateway.core.pools import PoolCache
from mcp_exec_gateway.features.files.artifacts import ArtifactService, LinkSigner
from mcp_exec_gateway.features.files.forwarding import FilesForwarder
from mcp_exec_gateway.features.files.workspaces import WorkspaceQuotas
from mcp_exec_gateway.features.mcp.abandoned_runs import AbandonedRuns
from mcp_exec_gateway.features.rollouts.exposures import ExposureLog
from mcp_exec_gateway.features.rollouts.service import RolloutCache, RolloutSteering
from mcp_exec_gateway.features.sessions.service import SessionCache, SessionService
from mcp_exec_gateway.features.skills.cache import SkillCache
from mcp_exec_gateway.features.skills.service import SkillService
from mcp_exec_gateway.features.tools.catalogs import ToolCatalogs
from mcp_exec_gateway.features.tools.direct import RunningCalls
from mcp_exec_gateway.metrics import Metrics
from mcp_exec_gateway.settings import Settings

_SHORT_REQUESTS: Final = 1024
"""Requests without a wait at once, which watch their execution as long as the API server takes to answer."""
MAX_FOLLOWERS: Final = 8
"""Event streams of one execution, of the 64 connections that a supervisor accepts."""


class _Cache(Protocol):
    def build_reflector(self, *, kube: KubeClient, namespace: str) -> Reflector: ...


class Dependencies:
    """The objects that the routes use. What needs a broker is None if no broker is configured."""

    def __init__(self, settings: Settings, *, kube: KubeClient, supervisors: SupervisorClient) -> None:
        """Build everything with these clients. The caller runs the reflectors and the exposures."""
        self.settings, self.kube, self.supervisors = settings, kube, supervisors
        self.shutdown, self.served = ShutdownSignals(), ServedNamespaces(settings.namespaces)
        self.attestor = Attestor(keys=supervisors.keys, accounts_proven=settings.accounts_proven)
        self.memory = MemoryBudget()
        self.index = ExecutionIndex(
            # requests that wait have slots of their own, and must not hold up those that do not
            max_waits=settings.max_waits + 2 * settings.max_streams + _SHORT_REQUESTS,
            attestor=self.attestor,
            memory=self.memory,
            lists=ExecutionLists(served=self.served),
            stored=StoredExecutions(max_stored=settings.max_stored, max_stored_bytes=settings.max_stored_bytes),
        )
        self.pools, self.keys, self.rollouts = PoolCache(), ApiKeyStore(), RolloutCache()
        session_cache, skill_cache = SessionCache(attestor=self.attestor), SkillCache(attestor=self.attestor)
        self.reflectors: dict[str, Reflector] = {}
        """By a description of what each reflects."""
        self.release_reflectors: dict[str, Reflector] = {}
        """Those of no served namespace."""
        caches: dict[str, _Cache] = {
            "executions": self.index,
            "pools": self.pools,
            "sessions": session_cache,
            "skills": skill_cache,
            "rollouts": self.rollouts,
        }
        self.namespaces = NamespaceReflectors(
            served=self.served,
            release_namespace=settings.release_namespace,
            build=lambda namespace: {
                f"{kind} in {namespace}": cache.build_reflector(kube=kube, namespace=namespace)
                for kind, cache in caches.items()
            },
            reflectors=self.reflectors,
        )
        if settings.api_keys_secret:
            self.release_reflectors["API keys"] = self.keys.build_reflector(
                kube=kube, namespace=settings.release_namespace, name=settings.api_keys_secret
            )
        self.broker: BrokerClient | None = None
        self.direct_calls: DirectCallClient | None = None
        self.records: RecordsClient | None = None
        if settings.broker_service:
            self.broker, self.release_reflectors["addresses of the broker"] = follow_broker(
                kube=kube,
                session=supervisors.broker_session,
                namespace=settings.release_namespace,
                service=settings.broker_service,
                keys=supervisors.keys,
                sender="gateway",
            )
            self.direct_calls = DirectCallClient(broker=self.broker)
            self.records = RecordsClient(self.broker)
        self.reflectors.update(self.release_reflectors)
        self.stream_slots = _build_slots(settings, "event streams")
        """Event streams, by caller."""
        self.listener_slots = _build_slots(settings, "streams of changes")
        """MCP clients that wait for changes of their tools, by caller."""
        self.follower_slots = RequestSlots(kind="event streams", max_total=settings.max_streams, max_each=MAX_FOLLOWERS)
        """Event streams, by execution."""
        self.transfer_slots = RequestSlots(
            kind="transfers of files",
            max_total=settings.max_transfers,
            max_each=settings.max_transfers_per_caller,
            retry_seconds=2,
        )
        """Files that are sent or received, by caller."""
        self.metrics = Metrics(count_waits=lambda: self.index.wait_count, count_streams=lambda: self.stream_slots.open)
        self.rate_limiter = RateLimiter()
        self.callers = CallerResolver(
            authenticator=Authenticator(
                keys=self.keys,
                tokens=ServiceAccountTokens.create(kube=kube, audience=settings.audience),
                namespaces=self.served,
            ),
            rate_limiter=self.rate_limiter,
            peer_limiter=PeerLimiter(per_minute=settings.anonymous_requests_per_minute),
            trusted_proxies=settings.trusted_proxies,
            metrics=self.metrics,
            reflectors=self.reflectors,
        )
        self.files = FilesForwarder(self.broker)
        self.workspaces = WorkspaceQuotas(files=self.files)
        self.sessions = SessionService(
            kube=kube,
            cache=session_cache,
            pools=self.pools,
            attestor=self.attestor,
            max_each=settings.max_sessions_per_caller,
        )
        self.executions = ExecutionService(
            kube=kube,
            index=self.index,
            pools=self.pools,
            sessions=self.sessions,
            workspaces=self.workspaces,
            submitter=Submitter(kube=kube, index=self.index, pools=self.pools, attestor=self.attestor),
            metrics=self.metrics,
            max_wait_seconds=settings.max_wait_seconds,
            wait_slots=RequestSlots(
                kind="waits",
                max_total=settings.max_waits,
                max_each=settings.max_waits_per_caller,
                retry_seconds=1,
            ),
        )
        self.artifacts = ArtifactService(
            files=self.files, attestor=self.attestor, links=LinkSigner(keys=supervisors.keys)
        )
        self.deleter = ExecutionDeleter(kube=kube, executions=self.executions, artifacts=self.artifacts)
        self.abandoned = AbandonedRuns(kube=kube, attestor=self.attestor, cache=self.index.calls)
        self.skills = SkillService(
            kube=kube,
            cache=skill_cache,
            attestor=self.attestor,
            executions=self.executions,
            self_approval=settings.skill_self_approval,
        )
        self.rollout_steering = RolloutSteering(kube=kube, cache=self.rollouts)
        self.exposures = ExposureLog(client=self.records, metrics=self.metrics)
        self.catalogs = ToolCatalogs(broker=self.broker, skills=skill_cache.get_catalog)
        self.running_calls = RunningCalls()
        """Direct calls in progress."""

    @classmethod
    @asynccontextmanager
    async def connect(cls, settings: Settings) -> AsyncIterator[Self]:
        """Build everything and run the reflectors. A reflector that fails ends the context with its error."""
        keys = MountedKeys.read(settings.sandbox_key_folder)
        async with (
            KubeClient.connect(kubeconfig=settings.kubeconfig) as kube,
            SupervisorClient.connect(keys=keys.keys) as supervisors,
        ):
            dependencies = cls(settings, kube=kube, supervisors=supervisors)
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(reflector.run(), name=description)
                    for description, reflector in dependencies.release_reflectors.items()
                ]
                tasks.append(
                    group.create_task(dependencies.namespaces.run(settings.mounted_namespaces), name="namespaces")
                )
                tasks.append(group.create_task(dependencies.exposures.run(), name="exposures"))
                tasks.append(group.create_task(keys.follow(), name="sandbox keys"))
                yield dependencies
                for task in tasks:
                    task.cancel()


def _build_slots(settings: Settings, kind: str) -> RequestSlots:
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
ApproveCaller = Annotated[Caller, Depends(authorize("approve"))]
SkillApproveCaller = Annotated[Caller, Depends(authorize("approve-skills"))]
RolloutApproveCaller = Annotated[Caller, Depends(authorize("approve-rollouts"))]
