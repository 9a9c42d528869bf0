"""ServiceAccount tokens: the API server says whose they are (TokenReview) and what those may (SubjectAccessReview).

Both answers are remembered for a short while, so a token costs the API server about two questions a minute.
"""

import asyncio
import base64
import hashlib
import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Self

from mcp_exec_api.constants import EXECUTIONS, GROUP
from mcp_exec_common.kube.client import KubeClient, resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_gateway.http.problems import Problem, unavailable
from mcp_exec_gateway.memory import Memory

log = logging.getLogger(__name__)

POSITIVE_SECONDS: Final = 60.0
NEGATIVE_SECONDS: Final = 5.0
_MAX_TOKEN_CHARACTERS: Final = 16384
_REVIEWS_AT_ONCE: Final = 16
_ACCOUNT: Final = "system:serviceaccount:"

_REVIEWS: Final = resource_path("tokenreviews", group="authentication.k8s.io/v1")
_ACCESS: Final = resource_path("subjectaccessreviews", group="authorization.k8s.io/v1")


@dataclass(frozen=True, kw_only=True)
class User:
    """The ServiceAccount that a token belongs to."""

    name: str
    uid: str
    groups: tuple[str, ...]
    extra: str
    """As JSON, so that it can be a part of a remembered question."""
    expires: float
    """Unix time of the token's own end."""

    @property
    def namespace(self) -> str:
        """The ServiceAccount's namespace."""
        return self.name.removeprefix(_ACCOUNT).partition(":")[0]


def token_expiry(token: str) -> float:
    """The Unix time in a JSON Web Token's `exp`, unverified; infinity where it has none.

    Raises ValueError where the token has not the form of one.
    """
    if len(token) > _MAX_TOKEN_CHARACTERS or token.count(".") != 2:
        raise ValueError("no JSON Web Token")
    payload = token.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    if not isinstance(claims, dict):
        raise ValueError("no claims")
    expiry = claims.get("exp", float("inf"))
    if not isinstance(expiry, int | float):
        raise ValueError("exp is no number")
    return float(expiry)


@dataclass(kw_only=True)
class Tokens:
    """Knows users by their tokens and what they may."""

    kube: KubeClient
    users: Memory[User | None]
    access: Memory[bool]
    audience: str = ""
    wall_clock: Callable[[], float] = time.time
    _gate: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_REVIEWS_AT_ONCE), init=False)

    @classmethod
    def of(cls, *, kube: KubeClient, audience: str = "", wall_clock: Callable[[], float] = time.time) -> Self:
        """With memories of the usual lifetimes; a user is forgotten when the token ends."""

        def lifetime(user: User | None) -> float:
            return NEGATIVE_SECONDS if user is None else min(POSITIVE_SECONDS, user.expires - wall_clock())

        return cls(
            kube=kube,
            audience=audience,
            users=Memory(lifetime=lifetime),
            access=Memory(lifetime=lambda allowed: POSITIVE_SECONDS if allowed else NEGATIVE_SECONDS),
            wall_clock=wall_clock,
        )

    async def user(self, token: str) -> User | None:
        """The user of a token, or None where it is not good. Raises Problem where the API server can't say."""
        try:
            expires = token_expiry(token)
        except ValueError:
            return None
        if expires <= self.wall_clock():
            return None
        digest = hashlib.sha256(token.encode()).digest()
        return await self.users.get(digest, lambda: self._review(token, expires))

    async def allowed(self, user: User, *, verb: str, namespace: str, subresource: str = "") -> bool:
        """Whether the user may do this with executions, or a subresource of them.

        Raises Problem where the API server can't say.
        """
        attributes = {"namespace": namespace, "verb": verb, "group": GROUP, "resource": EXECUTIONS}
        if subresource:
            attributes["subresource"] = subresource
        return await self.access.get((user, verb, namespace, subresource), lambda: self._ask(user, attributes))

    async def _review(self, token: str, expires: float) -> User | None:
        spec: dict[str, Any] = {"token": token, **({"audiences": [self.audience]} if self.audience else {})}
        status = await self._post(_REVIEWS, "TokenReview", "authentication.k8s.io/v1", spec)
        if not status.get("authenticated"):
            return None
        # an API server without audience support answers without audiences: then the token is for anybody
        if self.audience and self.audience not in (status.get("audiences") or []):
            return None
        user = status.get("user") or {}
        # other users could have the name of an API key, and have no namespace
        if not user.get("username", "").startswith(_ACCOUNT):
            return None
        return User(
            name=user["username"],
            uid=user.get("uid", ""),
            groups=tuple(user.get("groups") or ()),
            extra=json.dumps(user.get("extra") or {}, sort_keys=True),
            expires=expires,
        )

    async def _ask(self, user: User, attributes: dict[str, str]) -> bool:
        spec = {
            "user": user.name,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": json.loads(user.extra),
            "resourceAttributes": attributes,
        }
        status = await self._post(_ACCESS, "SubjectAccessReview", "authorization.k8s.io/v1", spec)
        return bool(status.get("allowed")) and not status.get("denied")

    async def _post(self, path: str, kind: str, version: str, spec: dict[str, Any]) -> dict[str, Any]:
        try:
            async with self._gate:
                review = await self.kube.create(path, {"apiVersion": version, "kind": kind, "spec": spec})
        except ApiError as error:
            log.error("a %s failed: %s", kind, error)
            raise unavailable("the API server can't check tokens right now") from error
        status: dict[str, Any] = review.get("status") or {}
        return status


def token_problem() -> Problem:
    """401 that does not say which of key, token and audience was wrong."""
    detail = "send 'Authorization: Bearer ' with an API key or a ServiceAccount token that is good"
    return Problem("unauthenticated", 401, detail, headers={"WWW-Authenticate": 'Bearer realm="mcp-exec"'})
