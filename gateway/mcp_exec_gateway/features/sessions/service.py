"""Sessions of callers: a cache of them, their quota, and the operations on them."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from mcp_exec_api.code_execution import CodeExecutionSpec, read_created_at
from mcp_exec_api.constants import (
    ANNOTATION_CALLER,
    ANNOTATION_CALLER_PROOF,
    ANNOTATION_CREATED,
    API_VERSION,
    LABEL_CALLER,
    LABEL_MANAGED_BY,
    MANAGED_BY,
    SESSIONS,
)
from mcp_exec_api.files import Owner
from mcp_exec_api.meta import FieldError, micro_time, now
from mcp_exec_api.sandbox_session import SandboxSessionSpec, SessionPhase
from mcp_exec_api.wire.sessions import NewSession
from mcp_exec_api.wire.stats import NamespaceStats, OwnSessions
from mcp_exec_common.broker.attestations import Attestor, drop_claim
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey, Reflector, object_key
from mcp_exec_gateway.core.auth.callers import Caller, check_user, find_owner, may_see
from mcp_exec_gateway.core.http.problems import HttpProblem, invalid_field, too_many, translate_refusal, unavailable
from mcp_exec_gateway.core.pools import PoolCache, choose_pool

_EXPECTATION_SECONDS: Final = 30.0
"""Seconds. A session that a request may have created counts for so long, until a watch event shows it."""
_MAX_EXPECTED: Final = 10_000
_KEPT_METADATA: Final = ("namespace", "name", "uid", "creationTimestamp", "resourceVersion")


def read_owner(session: Object, attestor: Attestor) -> Owner:
    """Return a session's owner: as the operator wrote it, or as the gateway proved it at the creation."""
    metadata, status = session["metadata"], session.get("status") or {}
    is_observed = bool(status.get("ownerDigest"))
    caller = str(status.get("caller") or "") if is_observed else attestor.read_caller(session)
    user = (session.get("spec") or {}).get("user") or ""
    return Owner(namespace=metadata.get("namespace", ""), caller=drop_claim(caller), user=user)


def is_live(session: Object) -> bool:
    """Return whether a session has a pod or will get one."""
    phase = (session.get("status") or {}).get("phase")
    return phase not in (SessionPhase.LOST, SessionPhase.ENDED)


@dataclass(kw_only=True)
class SessionCache:
    """Sessions by namespace and name of the object. The reflectors call `on_change`."""

    attestor: Attestor
    clock: Callable[[], float] = time.monotonic
    _sessions: dict[ObjectKey, tuple[Owner, Object]] = field(default_factory=dict, init=False)
    _expected: dict[ObjectKey, tuple[str, float]] = field(default_factory=dict, init=False)
    """Caller and time of sessions that requests name and that do not exist yet."""

    def build_reflector(self, *, kube: KubeClient, namespace: str) -> Reflector:
        """Build the reflector of one namespace's sessions, which keeps the objects here."""
        path = custom_resource_path(SESSIONS, namespace=namespace)
        reflector = Reflector(
            kube=kube,
            path=path,
            on_change=self.on_change,
            transform=lambda session: {"metadata": {name: session["metadata"].get(name) for name in _KEPT_METADATA}},
        )
        self.attestor.keys.withdrawn.connect(reflector.relist)
        return reflector

    def on_change(self, session: Object, deleted: bool) -> None:
        """Observe one change."""
        key = object_key(session)
        self._expected.pop(key, None)
        if deleted:
            self._sessions.pop(key, None)
        else:
            self._sessions[key] = (read_owner(session, self.attestor), _strip_session(session))

    def find(self, key: ObjectKey) -> Object | None:
        """Return the session, or None if it does not exist."""
        found = self._sessions.get(key)
        return None if found is None else found[1]

    def list_own(self, namespace: str, caller: str) -> list[tuple[Owner, Object]]:
        """Return the sessions of a caller, for all of its users, with their owners, ordered by name."""
        own = [
            (key, found)
            for key, found in self._sessions.items()
            if (found[0].namespace, found[0].caller) == (namespace, caller)
        ]
        return [found for _, found in sorted(own, key=lambda each: each[0])]

    def count(self, namespace: str, caller: str) -> int:
        """Return the number of a caller's live sessions, with those that are being created."""
        live = sum(1 for _, session in self.list_own(namespace, caller) if is_live(session))
        self._drop_old()
        return live + sum(1 for (space, _), (own, _) in self._expected.items() if (space, own) == (namespace, caller))

    def has(self, key: ObjectKey) -> bool:
        """Return whether a session is live, or is being created."""
        session = self.find(key)
        self._drop_old()
        return key in self._expected or (session is not None and is_live(session))

    def expect(self, key: ObjectKey, caller: str) -> None:
        """Count a session before it exists."""
        if len(self._expected) < _MAX_EXPECTED:
            self._expected.setdefault(key, (caller, self.clock()))

    def forget(self, key: ObjectKey) -> None:
        """Stop counting a session that was not created."""
        self._expected.pop(key, None)

    def _drop_old(self) -> None:
        oldest = self.clock() - _EXPECTATION_SECONDS
        for key in [key for key, (_, since) in self._expected.items() if since < oldest]:
            del self._expected[key]


def _strip_session(session: Object) -> Object:
    metadata = session["metadata"]
    return {
        "metadata": {name: metadata[name] for name in _KEPT_METADATA if name in metadata},
        "spec": session.get("spec") or {},
        "status": session.get("status") or {},
    }


_MAX_ATTEMPTS: Final = 8
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,48}[a-z0-9])?")


@dataclass(frozen=True, kw_only=True)
class SessionService:
    """Sessions as the API server has them."""

    kube: KubeClient
    cache: SessionCache
    pools: PoolCache
    attestor: Attestor
    max_each: int
    """Maximum number of live sessions of one caller, unless its API key has a limit of its own."""

    def admit(self, name: str, *, caller: Caller, owner: Owner) -> None:
        """Count a session that a request names. Raises HttpProblem if it would be one too many of the caller's."""
        key = (owner.namespace, owner.qualify(name))
        if self.cache.has(key):
            return
        limit = self.limit_of(caller)
        if self.cache.count(owner.namespace, caller.label) >= limit:
            detail = (
                f"session: {caller.name} has {limit} sessions, which is its limit, and {name} would be one more; use "
                "one of them, delete one by DELETE /v1/sessions/NAME, or wait until one ends"
            )
            raise too_many(detail, retry_after=5)
        self.cache.expect(key, caller.label)

    async def admit_execution(self, spec: CodeExecutionSpec, *, owner: Owner, caller: Caller) -> None:
        """Count the session of a new execution. Raises HttpProblem if it would be one too many of the caller's."""
        if spec.session is not None:
            self.admit(spec.session, caller=caller, owner=owner)

    async def add_stats(self, stats: NamespaceStats, *, caller: Caller) -> NamespaceStats:
        """Add the number of the caller's sessions, and its limit."""
        own = self.cache.count(caller.namespace, caller.label)
        return stats.model_copy(update={"sessions": OwnSessions(own=own, limit=self.limit_of(caller))})

    def limit_of(self, caller: Caller) -> int:
        """Return the maximum number of a caller's live sessions."""
        limit = caller.limits.max_sessions
        return self.max_each if limit is None else limit

    async def create(self, new: NewSession, *, caller: Caller) -> Object:
        """Create a session. Raises HttpProblem: 403, 422, 409 if it exists, 429 at the caller's limit."""
        if "resets" in new.model_fields_set:
            raise invalid_field("resets", "it cannot be set at creation; POST /v1/sessions/NAME/reset resets a session")
        named = new.pool_ref.name if "pool_ref" in new.model_fields_set else None
        pool = choose_pool(named, new.language, caller=caller, pools=self.pools)
        owner = find_owner(caller, new.user)
        key = (owner.namespace, owner.qualify(new.name))
        if self.cache.find(key) is not None:
            raise _exists(new.name)
        self.admit(new.name, caller=caller, owner=owner)
        try:
            return await self.kube.create(
                custom_resource_path(SESSIONS, namespace=key[0]), self._build_manifest(key, new, pool.name, caller)
            )
        except ApiError as error:
            self.cache.forget(key)
            if error.code == 409:
                raise _exists(new.name) from error
            raise translate_refusal(error, namespace=key[0], kind="SandboxSession") from error

    async def find(self, name: str, *, owner: Owner) -> Object:
        """Return the session as it is now. Raises HttpProblem, a 404, if the owner has none of this name."""
        try:
            session = await self.kube.get(_path(owner, name))
        except ApiError as error:
            if error.code in (400, 404):
                raise _not_found(owner, name) from error
            raise
        if read_owner(session, self.attestor) != owner:
            raise _not_found(owner, name)
        return session

    def list_own(self, caller: Caller, *, user: str | None) -> list[tuple[Owner, Object]]:
        """Return the caller's sessions with their owners, of all users or of one."""
        check_user(user, caller=caller)
        own = self.cache.list_own(caller.namespace, caller.label)
        return [
            (owner, session)
            for owner, session in own
            if (user is None or owner.user == user) and may_see(caller, creator=owner.caller, user=owner.user)
        ]

    async def reset(self, name: str, *, owner: Owner) -> Object:
        """Request that a session starts afresh, and return it. Raises HttpProblem."""
        for _ in range(_MAX_ATTEMPTS):
            session = await self.find(name, owner=owner)
            version = {"resourceVersion": session["metadata"]["resourceVersion"]}
            resets = int((session.get("spec") or {}).get("resets") or 0)
            try:
                return await self.kube.patch(_path(owner, name), {"metadata": version, "spec": {"resets": resets + 1}})
            except ApiError as error:
                if error.code == 404:
                    raise _not_found(owner, name) from error
                if error.code != 409:
                    raise
        raise unavailable(f"session {name} changed during each of {_MAX_ATTEMPTS} attempts")

    async def delete(self, name: str, *, owner: Owner) -> None:
        """End a session and delete it. Raises HttpProblem, a 404, if the owner has none of this name."""
        session = await self.find(name, owner=owner)
        await self.kube.delete(_path(owner, name), uid=session["metadata"]["uid"])

    def _build_manifest(self, key: ObjectKey, new: NewSession, pool: str, caller: Caller) -> Object:
        annotations = {ANNOTATION_CALLER: caller.name, ANNOTATION_CREATED: micro_time(now())}
        manifest: Object = {
            "apiVersion": API_VERSION,
            "kind": "SandboxSession",
            "metadata": {
                "namespace": key[0],
                "name": key[1],
                "labels": {LABEL_MANAGED_BY: MANAGED_BY, LABEL_CALLER: caller.label},
                "annotations": annotations,
            },
            # the pool says what the language is
            "spec": {**new.model_copy(update={"language": None}).to_api(), "poolRef": {"name": pool}},
        }
        annotations[ANNOTATION_CALLER_PROOF] = self.attestor.sign_caller(manifest)
        return manifest


def _path(owner: Owner, name: str) -> str:
    """Return the path of a session. Raises HttpProblem, a 404, for a name that no session can have."""
    if not _NAME.fullmatch(name):
        raise _not_found(owner, name[:100])
    return custom_resource_path(SESSIONS, namespace=owner.namespace, name=owner.qualify(name))


def _exists(name: str) -> HttpProblem:
    detail = f"a session {name} exists: use it, delete it, or choose another name"
    return HttpProblem("conflict", 409, detail, errors=[FieldError(field="name", message=f"{name} is taken")])


def _not_found(owner: Owner, name: str) -> HttpProblem:
    whose = f"{owner.caller} for user {owner.user}" if owner.user else owner.caller
    return HttpProblem("not-found", 404, f"{whose} has no session {name} in namespace {owner.namespace}")


_FROM_STATUS = (
    "reason",
    "executions",
    "queued",
    "memoryBytes",
    "podName",
    "nodeName",
    "startedAt",
    "lastUsedAt",
    "expiresAt",
    "endedAt",
    "conditions",
)


def build_session_view(session: Object, owner: Owner) -> dict[str, Any]:
    """Return a session as a response shows it, with the spec's defaults."""
    metadata, spec, status = session["metadata"], session.get("spec") or {}, session.get("status") or {}
    defaults = {"idleTimeoutSeconds": None, "maxAgeSeconds": None, "maxQueued": None}
    for name in ("idle_timeout_seconds", "max_age_seconds", "max_queued"):
        field = SandboxSessionSpec.model_fields[name]
        defaults[str(field.alias)] = field.default
    optional = {
        "caller": owner.caller,
        "user": owner.user,
        "description": spec.get("description"),
        **{name: status.get(name) for name in _FROM_STATUS},
    }
    return {
        "name": spec.get("name") or metadata["name"],
        "namespace": owner.namespace,
        "pool": (spec.get("poolRef") or {}).get("name", "default"),
        "phase": status.get("phase") or SessionPhase.PENDING.value,
        "reason": "",
        "executions": 0,
        "queued": 0,
        **{name: spec.get(name, default) for name, default in defaults.items()},
        "resets": spec.get("resets") or 0,
        "createdAt": read_created_at(session),
        **{name: value for name, value in optional.items() if value not in (None, "")},
    }
