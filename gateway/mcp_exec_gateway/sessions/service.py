"""Operations on sessions: create, get, list, reset, delete, for the caller that owns them."""

import re
from dataclasses import dataclass
from typing import Final

from mcp_exec_api.constants import (
    ANNOTATION_CALLER_PROOF,
    ANNOTATION_CREATED,
    API_VERSION,
    LABEL_CALLER,
    LABEL_MANAGED_BY,
    MANAGED_BY,
    SESSIONS,
)
from mcp_exec_api.meta import FieldError, micro_time, now
from mcp_exec_api.owner import Owner
from mcp_exec_api.wire.sessions import NewSession
from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_gateway.auth.callers import Caller, check_user, may_see
from mcp_exec_gateway.http.problems import HttpProblem, invalid_field, too_many, translate_refusal, unavailable
from mcp_exec_gateway.pools.cache import PoolCache
from mcp_exec_gateway.pools.choice import check_pool, find_pool
from mcp_exec_gateway.sessions.cache import SessionCache, read_owner

_MAX_ATTEMPTS: Final = 8
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,48}[a-z0-9])?")


def find_owner(caller: Caller, user: str | None) -> Owner:
    """Return the owner that a caller is on behalf of a user. Raises HttpProblem, a 403, if it may not name the user."""
    check_user(user, caller=caller)
    return Owner(namespace=caller.namespace, caller=caller.label, user=user or "")


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

    def limit_of(self, caller: Caller) -> int:
        """Return the maximum number of a caller's live sessions."""
        limit = caller.limits.max_sessions
        return self.max_each if limit is None else limit

    async def create(self, new: NewSession, *, caller: Caller) -> Object:
        """Create a session. Raises HttpProblem: 403, 422, 409 if it exists, 429 at the caller's limit."""
        if "resets" in new.model_fields_set:
            raise invalid_field("resets", "it cannot be set at creation; POST /v1/sessions/NAME/reset resets a session")
        check_pool(new.pool_ref.name, caller=caller, field="poolRef.name")
        owner = find_owner(caller, new.user)
        find_pool(new.pool_ref.name, caller=caller, pools=self.pools, field="poolRef.name")
        key = (owner.namespace, owner.qualify(new.name))
        if self.cache.find(key) is not None:
            raise _exists(new.name)
        self.admit(new.name, caller=caller, owner=owner)
        try:
            return await self.kube.create(
                custom_resource_path(SESSIONS, namespace=key[0]), self._build_manifest(key, new, caller)
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

    def _build_manifest(self, key: ObjectKey, new: NewSession, caller: Caller) -> Object:
        annotations = {ANNOTATION_CREATED: micro_time(now())}
        manifest: Object = {
            "apiVersion": API_VERSION,
            "kind": "SandboxSession",
            "metadata": {
                "namespace": key[0],
                "name": key[1],
                "labels": {LABEL_MANAGED_BY: MANAGED_BY, LABEL_CALLER: caller.label},
                "annotations": annotations,
            },
            "spec": new.to_api(),
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
