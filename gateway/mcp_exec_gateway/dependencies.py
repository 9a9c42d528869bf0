"""Everything that the routes use, built once per process, and how FastAPI passes it to them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Final, Self, cast

from fastapi import Depends
from fastapi.security import HTTPAuthorizationCredentials
from starlette.requests import Request

from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.broker.client import BrokerClient, follow_broker
from mcp_exec_common.broker.direct_calls import DirectCallClient
from mcp_exec_common.broker.records import RecordsClient
from mcp_exec_common.kube.client import KubeClient
from mcp_exec_common.kube.reflector import Reflector
from mcp_exec_common.supervisor.client import SupervisorClient
from mcp_exec_gateway.auth.api_keys import ApiKeyStore
from mcp_exec_gateway.auth.callers import BEARER, Authenticator, Caller, CallerResolver, Verb
from mcp_exec_gateway.auth.rate_limits import PeerLimiter, RateLimiter
from mcp_exec_gateway.auth.service_accounts import ServiceAccountTokens
from mcp_exec_gateway.executions.abandoned_runs import AbandonedRuns
from mcp_exec_gateway.executions.deletion import ExecutionDeleter
from mcp_exec_gateway.executions.index import ExecutionIndex
from mcp_exec_gateway.executions.limits import StoredExecutions
from mcp_exec_gateway.executions.lists import ExecutionLists
from mcp_exec_gateway.executions.service import ExecutionService
from mcp_exec_gateway.executions.submission import Submitter
from mcp_exec_gateway.files.artifacts import ArtifactService, LinkSigner
from mcp_exec_gateway.files.forwarding import FilesForwarder
from mcp_exec_gateway.files.workspaces import WorkspaceQuotas
from mcp_exec_gateway.http.access_log import ShutdownSignals
from mcp_exec_gateway.http.limits import MemoryBudget, RequestSlots
from mcp_exec_gateway.metrics import Metrics
from mcp_exec_gateway.pools import PoolCache
from mcp_exec_gateway.records import ExposureLog
from mcp_exec_gateway.rollouts import RolloutCache, RolloutSteering
from mcp_exec_gateway.sessions import SessionCache, SessionService
from mcp_exec_gateway.settings import Settings
from mcp_exec_gateway.skills.cache import SkillCache
from mcp_exec_gateway.skills.service import SkillService
from mcp_exec_gateway.tools.catalogs import ToolCatalogs
from mcp_exec_gateway.tools.direct import RunningCalls

_SHORT_REQUESTS: Final = 1024
"""Requests without a wait at once, which watch their execution as long as the API server takes to answer."""
MAX_FOLLOWERS: Final = 8
"""Event streams of one execution, of the 64 connections that a supervisor accepts."""


@dataclass(frozen=True, kw_only=True)
class Dependencies:
    """The objects that the routes use."""

    settings: Settings
    kube: KubeClient
    supervisors: SupervisorClient
    broker: BrokerClient | None
    """None if no broker is configured."""
    direct_calls: DirectCallClient | None
    """None if no broker is configured."""
    attestor: Attestor
    index: ExecutionIndex
    memory: MemoryBudget
    pools: PoolCache
    keys: ApiKeyStore
    rate_limiter: RateLimiter
    callers: CallerResolver
    executions: ExecutionService
    deleter: ExecutionDeleter
    abandoned: AbandonedRuns
    sessions: SessionService
    files: FilesForwarder
    workspaces: WorkspaceQuotas
    artifacts: ArtifactService
    skills: SkillService
    records: RecordsClient | None
    """None if no broker is configured."""
    rollouts: RolloutCache
    rollout_steering: RolloutSteering
    exposures: ExposureLog
    catalogs: ToolCatalogs
    running_calls: RunningCalls
    """Direct calls in progress."""
    stream_slots: RequestSlots
    """Event streams, by caller."""
    listener_slots: RequestSlots
    """MCP clients that wait for changes of their tools, by caller."""
    follower_slots: RequestSlots
    """Event streams, by execution."""
    transfer_slots: RequestSlots
    """Files that are sent or received, by caller."""
    metrics: Metrics
    reflectors: dict[str, Reflector]
    """By a description of what each reflects."""
    shutdown: ShutdownSignals = field(default_factory=ShutdownSignals)

    @classmethod
    @asynccontextmanager
    async def connect(cls, settings: Settings) -> AsyncIterator[Self]:
        """Build everything and run the reflectors. A reflector that fails ends the context with its error."""
        key = settings.read_sandbox_key()
        async with (
            KubeClient.connect(kubeconfig=settings.kubeconfig) as kube,
            SupervisorClient.connect(key=key) as supervisors,
        ):
            dependencies = cls.build(settings, kube=kube, supervisors=supervisors)
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(reflector.run(), name=description)
                    for description, reflector in dependencies.reflectors.items()
                ]
                tasks.append(group.create_task(dependencies.exposures.run(), name="exposures"))
                yield dependencies
                for task in tasks:
                    task.cancel()

    @classmethod
    def build(cls, settings: Settings, *, kube: KubeClient, supervisors: SupervisorClient) -> Self:
        """Build everything with these clients. The caller runs the reflectors."""
        attestor, memory = Attestor(key=supervisors.key), MemoryBudget()
        index = ExecutionIndex(
            # requests that wait have slots of their own, and must not hold up those that do not
            max_waits=settings.max_waits + 2 * settings.max_streams + _SHORT_REQUESTS,
            attestor=attestor,
            memory=memory,
            lists=ExecutionLists(namespaces=len(settings.namespaces)),
            stored=StoredExecutions(max_stored=settings.max_stored, max_stored_bytes=settings.max_stored_bytes),
        )
        pools, keys, session_cache = PoolCache(), ApiKeyStore(), SessionCache(attestor=attestor)
        skills, rollouts = SkillCache(attestor=attestor), RolloutCache()
        reflectors = {}
        for namespace in settings.namespaces:
            reflectors[f"executions in {namespace}"] = index.build_reflector(kube=kube, namespace=namespace)
            reflectors[f"pools in {namespace}"] = pools.build_reflector(kube=kube, namespace=namespace)
            reflectors[f"sessions in {namespace}"] = session_cache.build_reflector(kube=kube, namespace=namespace)
            reflectors[f"skills in {namespace}"] = skills.build_reflector(kube=kube, namespace=namespace)
            reflectors[f"rollouts in {namespace}"] = rollouts.build_reflector(kube=kube, namespace=namespace)
        if settings.api_keys_secret:
            reflectors["API keys"] = keys.build_reflector(
                kube=kube, namespace=settings.release_namespace, name=settings.api_keys_secret
            )
        broker = None
        if settings.broker_service:
            broker, reflectors["addresses of the broker"] = follow_broker(
                kube=kube,
                session=supervisors.broker_session,
                namespace=settings.release_namespace,
                service=settings.broker_service,
                key=supervisors.key,
                sender="gateway",
            )
        streams = RequestSlots(
            kind="event streams", max_total=settings.max_streams, max_each=settings.max_streams_per_caller
        )
        rate_limiter = RateLimiter()
        metrics = Metrics.create(count_waits=lambda: index.wait_count, count_streams=lambda: streams.open)
        authenticator = Authenticator(
            keys=keys,
            tokens=ServiceAccountTokens.create(kube=kube, audience=settings.audience),
            namespaces=frozenset(settings.namespaces),
        )
        files = FilesForwarder(broker)
        records = None if broker is None else RecordsClient(broker)
        workspaces = WorkspaceQuotas(files=files)
        sessions = SessionService(
            kube=kube,
            cache=session_cache,
            pools=pools,
            attestor=attestor,
            max_each=settings.max_sessions_per_caller,
        )
        executions = ExecutionService(
            kube=kube,
            index=index,
            pools=pools,
            sessions=sessions,
            workspaces=workspaces,
            submitter=Submitter(kube=kube, index=index, pools=pools, attestor=attestor),
            metrics=metrics,
            max_wait_seconds=settings.max_wait_seconds,
            wait_slots=RequestSlots(
                kind="waits",
                max_total=settings.max_waits,
                max_each=settings.max_waits_per_caller,
                retry_seconds=1,
            ),
        )
        artifacts = ArtifactService(files=files, attestor=attestor, links=LinkSigner(key=supervisors.key))
        return cls(
            settings=settings,
            kube=kube,
            supervisors=supervisors,
            broker=broker,
            direct_calls=None if broker is None else DirectCallClient(broker=broker),
            attestor=attestor,
            index=index,
            memory=memory,
            pools=pools,
            keys=keys,
            rate_limiter=rate_limiter,
            callers=CallerResolver(
                authenticator=authenticator,
                rate_limiter=rate_limiter,
                peer_limiter=PeerLimiter(per_minute=settings.anonymous_requests_per_minute),
                trusted_proxies=settings.trusted_proxies,
                metrics=metrics,
                find_unsynced=lambda: find_unsynced(reflectors),
            ),
            executions=executions,
            deleter=ExecutionDeleter(kube=kube, executions=executions, artifacts=artifacts),
            abandoned=AbandonedRuns(kube=kube, attestor=attestor, cache=index.calls),
            sessions=sessions,
            files=files,
            workspaces=workspaces,
            artifacts=artifacts,
            skills=SkillService(
                kube=kube,
                cache=skills,
                attestor=attestor,
                executions=executions,
                self_approval=settings.skill_self_approval,
            ),
            records=records,
            rollouts=rollouts,
            rollout_steering=RolloutSteering(kube=kube, cache=rollouts),
            exposures=ExposureLog(client=records, metrics=metrics),
            catalogs=ToolCatalogs(broker=broker, skills=skills.get_catalog),
            running_calls=RunningCalls(),
            stream_slots=streams,
            listener_slots=RequestSlots(
                kind="streams of changes",
                max_total=settings.max_streams,
                max_each=settings.max_streams_per_caller,
            ),
            follower_slots=RequestSlots(kind="event streams", max_total=settings.max_streams, max_each=MAX_FOLLOWERS),
            transfer_slots=RequestSlots(
                kind="transfers of files",
                max_total=settings.max_transfers,
                max_each=settings.max_transfers_per_caller,
                retry_seconds=2,
            ),
            metrics=metrics,
            reflectors=reflectors,
        )

    def find_unsynced(self) -> list[str]:
        """Return what is not read yet. Until this is empty, the gateway is not ready."""
        return find_unsynced(self.reflectors)


def find_unsynced(reflectors: dict[str, Reflector]) -> list[str]:
    """Return the descriptions of the required reflectors that have not read their first list."""
    return [
        description
        for description, reflector in reflectors.items()
        if reflector.required and not reflector.synced.is_set()
    ]


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
