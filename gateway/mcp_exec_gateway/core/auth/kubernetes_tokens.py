"""Tokens of the cluster: the API server reviews the token (TokenReview) and the access (SubjectAccessReview).

Their users are ServiceAccounts, and people whom the API server authenticates.

Both answers are cached for a minute, so a token in use costs the API server about two reviews in a minute. Rejected
tokens have a cache of their own: a flood of them cannot displace the tokens in use.
"""

import asyncio
import base64
import hashlib
import json
import logging
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Self

from cachetools import TLRUCache, TTLCache
from pydantic_core import from_json

from mcp_exec_api.constants import ACCOUNT_PREFIX, EXECUTIONS, GROUP
from mcp_exec_common.kube.client import KubeClient, resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.util.ttl_cache import CoalescingCache
from mcp_exec_gateway.core.http.problems import unavailable

log = logging.getLogger(__name__)

POSITIVE_SECONDS: Final = 60.0
"""Time to live of a positive answer."""
NEGATIVE_SECONDS: Final = 5.0
"""Time to live of a negative answer."""
_MAX_TOKEN_CHARACTERS: Final = 16384
_MAX_REJECTED: Final = 8192
"""Maximum number of digests of rejected tokens."""
_MAX_VALID: Final = 8192
_USER_PREFIX: Final = "system:serviceaccount:"
_ANONYMOUS: Final = "system:anonymous"
_MAX_USERNAME: Final = 240
"""Characters, as of an account that creates objects in Kubernetes."""

_TOKEN_REVIEWS: Final = resource_path("tokenreviews", group="authentication.k8s.io/v1")
_ACCESS_REVIEWS: Final = resource_path("subjectaccessreviews", group="authorization.k8s.io/v1")

MAX_RUNNING: Final = 16
MAX_WAITING: Final = 128
_REVIEW_SECONDS: Final = 10.0
"""Maximum time of one review, its wait and its retries included."""


@dataclass(kw_only=True)
class ReviewQueue:
    """Reviews of one kind. Those of tokens cannot delay those of access, because each kind has its own queue."""

    max_running: int = MAX_RUNNING
    max_waiting: int = MAX_WAITING
    seconds: float = _REVIEW_SECONDS
    count: int = field(default=0, init=False)
    """Reviews that run or wait."""
    _slots: asyncio.Semaphore = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._slots = asyncio.Semaphore(self.max_running)

    @asynccontextmanager
    async def enter(self) -> AsyncIterator[None]:
        """Run the body as one review. Raises HttpProblem, a 503, if the queue is full or the time is over."""
        if self.count >= self.max_running + self.max_waiting:
            raise unavailable(f"{self.count} tokens wait for a review, which is the limit of this replica")
        self.count += 1
        try:
            async with asyncio.timeout(self.seconds) as limit, self._slots:
                yield
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise unavailable("the API server reviews tokens too slowly at the moment") from error
        finally:
            self.count -= 1


@dataclass(frozen=True, kw_only=True)
class KubernetesUser:
    """The user of a token: a ServiceAccount, or a person whom the API server authenticates."""

    username: str
    uid: str
    groups: tuple[str, ...]
    extra: str
    """The user's extra fields as JSON, so that the user can be part of a cache key."""
    expires: float
    """Unix time of the token's end."""

    @property
    def name(self) -> str:
        """Name of the caller: a ServiceAccount's username, which no API key has, or `k8s/USERNAME`."""
        return self.username if self.username.startswith(_USER_PREFIX) else self.rule_name

    @property
    def rule_name(self) -> str:
        """The name with its kind, as rules have it."""
        return ACCOUNT_PREFIX + self.username

    @property
    def rule_groups(self) -> tuple[str, ...]:
        """Groups with their kind, as rules have them."""
        return tuple(ACCOUNT_PREFIX + group for group in self.groups)

    @property
    def scopes(self) -> None:
        """None: tokens of the cluster have no scopes."""

    def name_scope(self, scope: str) -> str:
        """Return the scope."""
        return scope

    @property
    def namespace(self) -> str | None:
        """Namespace of a ServiceAccount; None for a person."""
        if not self.username.startswith(_USER_PREFIX):
            return None
        return self.username.removeprefix(_USER_PREFIX).partition(":")[0]


def read_token_expiry(token: str) -> float:
    """Return the unverified `exp` of a JSON Web Token as Unix time, or infinity if it has none.

    Raises ValueError if the text is not such a token.
    """
    if len(token) > _MAX_TOKEN_CHARACTERS or token.count(".") != 2:
        raise ValueError("not a JSON Web Token")
    payload = token.split(".")[1]
    try:
        # a parser with a limit of depth of its own: the interpreter's is not the same in all threads
        claims = from_json(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        if not isinstance(claims, dict):
            raise ValueError("the claims are not an object")
        expiry = claims.get("exp")
        if expiry is None and "exp" not in claims:
            return math.inf
        if isinstance(expiry, bool) or not isinstance(expiry, int | float) or not math.isfinite(expiry):
            raise ValueError("exp is not a finite number")
        return float(expiry)
    except OverflowError as error:
        raise ValueError("exp is too large a number") from error


AccessKey = tuple[KubernetesUser, str, str, str]
"""User, verb, namespace, and resource with subresource."""


@dataclass(kw_only=True)
class KubernetesTokens:
    """Reviews tokens and their users' access, with a cache for each."""

    kube: KubeClient
    users: CoalescingCache[bytes, KubernetesUser | None]
    access: CoalescingCache[AccessKey, bool]
    audience: str
    """Audience that a token must have."""
    people_audience: str = ""
    """Audience that a person's token may have instead."""
    wall_clock: Callable[[], float] = time.time
    token_reviews: ReviewQueue = field(default_factory=ReviewQueue, init=False)
    access_reviews: ReviewQueue = field(default_factory=ReviewQueue, init=False)
    _rejected: TTLCache[bytes, None] = field(
        default_factory=lambda: TTLCache(_MAX_REJECTED, NEGATIVE_SECONDS), init=False
    )
    """Digests of tokens that are invalid."""
    _once_valid: TLRUCache[bytes, float] = field(init=False)
    """Expiry by the digest of each token that a review found valid."""

    def __post_init__(self) -> None:
        self._once_valid = TLRUCache(_MAX_VALID, ttu=lambda digest, expires, moment: expires, timer=self.wall_clock)

    @classmethod
    def create(
        cls, *, kube: KubeClient, audience: str, people_audience: str = "", wall_clock: Callable[[], float] = time.time
    ) -> Self:
        """Create empty caches. A user is cached no longer than the token is valid."""

        def user_ttl(user: KubernetesUser | None) -> float:
            return 0.0 if user is None else min(POSITIVE_SECONDS, user.expires - wall_clock())

        return cls(
            kube=kube,
            audience=audience,
            people_audience=people_audience,
            users=CoalescingCache(ttl_seconds=user_ttl),
            access=CoalescingCache(ttl_seconds=lambda allowed: POSITIVE_SECONDS if allowed else NEGATIVE_SECONDS),
            wall_clock=wall_clock,
        )

    async def find_user(self, token: str) -> KubernetesUser | None:
        """Return the user of a token, or None if it is invalid. Raises HttpProblem if the API server fails."""
        try:
            expires = read_token_expiry(token)
        except ValueError:
            return None
        digest = _digest(token)
        if expires <= self.wall_clock() or digest in self._rejected:
            return None
        user = await self.users.get(digest, lambda: self._review_token(token, expires))
        if user is None:
            self._rejected[digest] = None
            self._once_valid.pop(digest, None)
        else:
            self._once_valid[digest] = user.expires
        return user

    def accepts(self, token: str) -> bool:
        """Return True: the API server reviews what no feature accepts."""
        return True

    def is_known(self, token: str) -> bool:
        """Return whether the token was valid at its last review and has not expired. A review may be due again."""
        return _digest(token) in self._once_valid

    async def is_allowed(
        self,
        user: KubernetesUser,
        *,
        verb: str,
        namespace: str,
        resource: str = EXECUTIONS,
        subresource: str = "",
    ) -> bool:
        """Return whether the user may do this with a resource or a subresource of it.

        Raises HttpProblem if the API server fails.
        """
        attributes = {"namespace": namespace, "verb": verb, "group": GROUP, "resource": resource}
        if subresource:
            attributes["subresource"] = subresource
        key = (user, verb, namespace, f"{resource}/{subresource}")
        return await self.access.get(key, lambda: self._review_access(user, attributes))

    async def _review_token(self, token: str, expires: float) -> KubernetesUser | None:
        audiences = [audience for audience in (self.audience, self.people_audience) if audience]
        spec = {"token": token, "audiences": audiences}
        manifest = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        status = await self._create_review(_TOKEN_REVIEWS, manifest, queue=self.token_reviews)
        if not status.get("authenticated"):
            return None
        user = status.get("user") or {}
        username = str(user.get("username") or "")
        if not username or len(username) > _MAX_USERNAME or not username.isprintable() or username == _ANONYMOUS:
            return None
        # an API server that ignores audiences returns none; it may have accepted a token for another audience
        allowed = {self.audience} if username.startswith(_USER_PREFIX) else set(audiences)
        if allowed.isdisjoint(status.get("audiences") or []):
            return None
        return KubernetesUser(
            username=username,
            uid=user.get("uid", ""),
            groups=tuple(user.get("groups") or ()),
            extra=json.dumps(user.get("extra") or {}, sort_keys=True),
            expires=expires,
        )

    async def _review_access(self, user: KubernetesUser, attributes: dict[str, str]) -> bool:
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": json.loads(user.extra),
            "resourceAttributes": attributes,
        }
        manifest = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        status = await self._create_review(_ACCESS_REVIEWS, manifest, queue=self.access_reviews)
        return bool(status.get("allowed")) and not status.get("denied")

    async def _create_review(self, path: str, manifest: dict[str, Any], *, queue: ReviewQueue) -> dict[str, Any]:
        try:
            async with queue.enter():
                review = await self.kube.create(path, manifest)
        except ApiError as error:
            log.error("a %s failed: %s", manifest["kind"], error)
            raise unavailable("the API server cannot review tokens at the moment") from error
        status: dict[str, Any] = review.get("status") or {}
        return status


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
