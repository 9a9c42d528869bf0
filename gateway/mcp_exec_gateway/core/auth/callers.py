"""Callers: authenticated by a bearer token, within their rate limit, and authorized in one namespace.

The token is an API key, one that the API server reviews, or one that a feature accepts. Nothing else of a request is
read before.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.requests import HTTPConnection, Request

from mcp_exec_api.constants import EXECUTIONS, GROUP, ROLLOUTS, SKILLS
from mcp_exec_api.files import Owner
from mcp_exec_api.meta import FieldError
from mcp_exec_api.wire.stats import KeyLimits
from mcp_exec_common.api_keys import KEY_PREFIX
from mcp_exec_common.kube.reflector import Reflector, find_unsynced
from mcp_exec_common.process.namespaces import ServedNamespaces
from mcp_exec_gateway.core.auth.api_keys import ApiKey, ApiKeyStore, describe_caller
from mcp_exec_gateway.core.auth.kubernetes_tokens import KubernetesTokens, KubernetesUser
from mcp_exec_gateway.core.auth.rate_limits import IpNetwork, PeerLimiter, RateLimiter, find_peer
from mcp_exec_gateway.core.auth.rules import SCOPE_APPROVE, SCOPE_RUN, AccessRules, SignedIn
from mcp_exec_gateway.core.http.access_log import get_trace
from mcp_exec_gateway.core.http.parameters import reject_repeated_parameters, reject_undecodable_url
from mcp_exec_gateway.core.http.problems import HttpProblem, unavailable
from mcp_exec_gateway.metrics import Metrics

Verb = Literal["create", "get", "list", "patch", "approve", "approve-skills", "approve-rollouts"]
"""Kubernetes verb on CodeExecutions; `approve` stands for `update` of the subresource `approval`, `approve-skills` and
`approve-rollouts` for the same of Skills and of ExecutionRollouts."""

_APPROVALS: Final = {"approve": EXECUTIONS, "approve-skills": SKILLS, "approve-rollouts": ROLLOUTS}
_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_MAX_LABEL: Final = 63
_MAX_WHOLE: Final = 54
"""Characters of a ServiceAccount's username that is its label, with dots for colons."""
_DIGEST_DIGITS: Final = 16

_NO_APPROVER: Final = (
    "the API key {name} is not an approver's: in a pod of the gateway, `python3 -m mcp_exec_gateway.create_key "
    "NAME --namespace {namespace} --approver` makes one (docs/platform/policy.md#approvals)"
)
_CHALLENGE: Final = 'Bearer realm="mcp-exec"'
_NO_RULE: Final = "no access rule lets {name} into {namespace}; a rule in the chart's value gateway.rules does"
_NO_RULE_OF_APPROVERS: Final = (
    "the access rule of {name} in namespace {namespace} makes no approver; `approver: true` in the chart's value "
    "gateway.rules does"
)


BEARER = HTTPBearer(
    scheme_name="bearer",
    description="An API key (`mcpx_...`), a token of Kubernetes, or one of a configured identity provider.",
    auto_error=False,
)


@dataclass(frozen=True, kw_only=True)
class Caller:
    """The authenticated sender of a request, authorized for it in one namespace."""

    name: str
    """Name of the API key, of the ServiceAccount, or `k8s/USERNAME` or `oidc/ALIAS/SUBJECT`."""
    label: str
    """The name as a label value."""
    namespace: str
    """Namespace of everything that this request reads and runs."""
    limits: KeyLimits = field(default_factory=KeyLimits)
    """Limits of the API key or of the rule. A caller whom only rights in Kubernetes let in has none."""
    sender: "Sender | None" = field(default=None, repr=False, compare=False)
    """Who was authenticated: the token may end while its request is served."""

    @property
    def title(self) -> str:
        """The caller in messages."""
        return describe_caller(self.name)


class TokenSource(Protocol):
    """Tokens of one kind, which a feature authenticates."""

    def accepts(self, token: str) -> bool:
        """Return whether the token states that it is of this kind. Nothing is verified."""

    def is_known(self, token: str) -> bool:
        """Return whether the token was found valid and has not expired."""

    async def find_user(self, token: str) -> SignedIn | None:
        """Return whose token it is, or None if it is invalid. Raises HttpProblem if that can't be known now."""


Sender = ApiKey | SignedIn
Challenge = Callable[[Request, str], str]
"""Returns more parameters of `WWW-Authenticate` for a request that needs another token, or an empty text. Its second
argument is the header so far."""
KeyObserver = Callable[[ApiKey], None]
"""Observes each request with a valid API key. It must not block."""


@dataclass(frozen=True, kw_only=True)
class Authenticator:
    """Authenticates and authorizes requests by the token of their Authorization header."""

    keys: ApiKeyStore
    tokens: KubernetesTokens
    sources: Sequence[TokenSource]
    """Those of features. The API server reviews what none of them accepts."""
    rules: AccessRules
    namespaces: ServedNamespaces
    """Namespaces that the gateway serves."""

    def recognizes(self, token: str) -> bool:
        """Return whether the token is known to be valid without a review."""
        if token.startswith(KEY_PREFIX):
            return self.keys.find(token) is not None
        return self._find_source(token).is_known(token)

    async def identify(self, token: str) -> Sender:
        """Return who has the token. Raises HttpProblem: 401 if it is invalid, 503 if that can't be known now."""
        known: Sender | None
        if token.startswith(KEY_PREFIX):
            known = self.keys.find(token)
        else:
            known = await self._find_source(token).find_user(token)
        if known is None:
            raise _unauthenticated()
        return known

    def _find_source(self, token: str) -> TokenSource:
        return next((source for source in self.sources if source.accepts(token)), self.tokens)

    async def authorize(self, sender: Sender, *, namespace: str | None, verb: Verb) -> Caller:
        """Return the caller, who may do this in the requested namespace (None: the caller's own).

        Raises HttpProblem: 403 if the sender may not, 503 if the API server fails.
        """
        if isinstance(sender, ApiKey):
            return self._authorize_key(sender, namespace, verb)
        account = sender if isinstance(sender, KubernetesUser) else None
        requested = namespace or (account.namespace if account else None)
        if (grant := self.rules.find(sender, requested)) is not None:
            if verb in _APPROVALS and not grant.approver:
                raise _forbidden(_NO_RULE_OF_APPROVERS.format(name=sender.name, namespace=grant.namespace))
            _check_scope(sender, verb)  # last: another token helps only those whom the rule allows it
            return _build_caller(sender, grant.namespace, grant.limits)
        if account is None or requested is None:
            raise _forbidden(_NO_RULE.format(name=sender.name, namespace=requested or "any namespace"))
        return await self._authorize_account(account, requested, verb)

    def _authorize_key(self, key: ApiKey, namespace: str | None, verb: Verb) -> Caller:
        own = key.entry.namespace
        if namespace is not None and namespace != own:
            raise _forbidden(f"the API key {key.name} is limited to namespace {own}; {namespace} was requested")
        self._check_served(own)
        if verb in _APPROVALS and not key.entry.approver:
            raise _forbidden(_NO_APPROVER.format(name=key.name, namespace=own))
        return _build_caller(key, own, key.limits)

    async def _authorize_account(self, user: KubernetesUser, chosen: str, verb: Verb) -> Caller:
        if chosen == user.namespace:
            self._check_served(chosen)
        kube_verb, subresource = ("update", "approval") if verb in _APPROVALS else (verb, "")
        kind = _APPROVALS.get(verb, EXECUTIONS)
        # One answer for a foreign namespace, whether it is served or not.
        if chosen not in self.namespaces or not await self.tokens.is_allowed(
            user, verb=kube_verb, namespace=chosen, resource=kind, subresource=subresource
        ):
            resource = f"{kind}.{GROUP}" + (f"/{subresource}" if subresource else "")
            hint = "; the chart's ClusterRole RELEASE-approver allows it" if verb in _APPROVALS else ""
            raise _forbidden(
                f"{user.name} may not {kube_verb} {resource} in namespace {chosen}, or it is not served{hint}"
            )
        return _build_caller(user, chosen, KeyLimits())

    def _check_served(self, namespace: str) -> None:
        if namespace not in self.namespaces:
            raise _forbidden(f"this gateway does not serve namespace {namespace}")


def _build_caller(sender: Sender, namespace: str, limits: KeyLimits) -> Caller:
    label = format_caller_label(sender.name)
    return Caller(name=sender.name, label=label, namespace=namespace, limits=limits, sender=sender)


def format_caller_label(name: str) -> str:
    """Return a caller's name as a label value.

    A name that must be changed or cut ends with 64 bits of a digest, so that nobody finds one with another's label.
    """
    if _LABEL_VALUE.fullmatch(name):
        return name
    plain = re.sub(r"[^A-Za-z0-9_.-]", ".", name)
    if name.startswith("system:serviceaccount:") and plain == name.replace(":", ".") and len(plain) <= _MAX_WHOLE:
        return plain  # no API key's name starts with "system."
    cut = plain[: _MAX_LABEL - _DIGEST_DIGITS - 1].strip("-_.") or "caller"
    return f"{cut}-{hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_DIGITS]}"


def _unauthenticated() -> HttpProblem:
    # the response does not reveal whether the key, the token or its audience is invalid
    detail = "send 'Authorization: Bearer ' with a valid API key or token"
    return HttpProblem("unauthenticated", 401, detail, headers={"WWW-Authenticate": _CHALLENGE})


class InsufficientScope(HttpProblem):
    """A 403 with the missing scope, which a client asks for in another token (RFC 6750)."""

    def __init__(self, sender: SignedIn, missing: str, *, further: Sequence[str] = ()) -> None:
        self._sender, self._missing = sender, missing
        kept = [scope for scope in further if scope in (sender.scopes or ())]
        scopes = " ".join(sender.name_scope(scope) for scope in (*kept, missing))
        challenge = f'{_CHALLENGE}, error="insufficient_scope", scope="{scopes}"'
        detail = f"the token of {sender.name} lacks the scope {missing}; get one with it"
        super().__init__("forbidden", 403, detail, headers={"WWW-Authenticate": challenge})

    def needing(self, *further: str) -> "InsufficientScope":
        """Return the same problem of an operation for which a new token must keep these scopes of this one."""
        return InsufficientScope(self._sender, self._missing, further=further)


def _check_scope(sender: SignedIn, verb: Verb) -> None:
    """Raise InsufficientScope if the token lacks the scope of the verb."""
    needed = SCOPE_APPROVE if verb in _APPROVALS else SCOPE_RUN
    if sender.scopes is not None and needed not in sender.scopes:
        raise InsufficientScope(sender, needed)


def _forbidden(detail: str) -> HttpProblem:
    return HttpProblem("forbidden", 403, detail)


@dataclass(frozen=True, kw_only=True)
class CallerResolver:
    """Finds the caller of a request."""

    authenticator: Authenticator
    rate_limiter: RateLimiter
    peer_limiter: PeerLimiter
    trusted_proxies: Sequence[IpNetwork]
    """Networks of proxies whose X-Forwarded-For counts."""
    challenges: Sequence[Challenge]
    """What features add to `WWW-Authenticate`."""
    key_observers: Sequence[KeyObserver]
    """What features add."""
    metrics: Metrics
    reflectors: Mapping[str, Reflector]
    """The gateway's caches, by a description."""

    async def resolve(
        self,
        request: Request,
        credentials: HTTPAuthorizationCredentials | None,
        verb: Verb,
        *,
        namespace: str | None = None,
    ) -> Caller:
        """Return the caller, who may do this in the namespace: this one, the query's or the caller's own.

        Raises HttpProblem: 401, 403, 429, or 503 while the gateway starts.
        """
        # with caches that are not filled, the gateway would reject keys and pools that exist
        if unsynced := find_unsynced(self.reflectors):
            raise unavailable(f"the gateway is starting: it has not read {', '.join(unsynced)} yet")
        # a proxy may have checked another one of two headers
        is_single = len(request.headers.getlist("authorization")) == 1
        token = credentials.credentials.strip() if credentials and is_single else ""
        try:
            with self.metrics.measure_stage("authenticate"):
                caller = await self._authenticate(request, token, namespace=namespace, verb=verb)
        except HttpProblem as problem:
            self.complete_challenge(request, problem)
            raise
        trace = get_trace(request.scope)
        trace.caller, trace.namespace = caller.name, caller.namespace
        reject_undecodable_url(request)
        reject_repeated_parameters(request)
        return caller

    def complete_challenge(self, request: Request, problem: HttpProblem) -> None:
        """Add what features have to say to the `WWW-Authenticate` of a problem, if it has one."""
        if (header := problem.headers.get("WWW-Authenticate")) is not None:
            parameters = [text for challenge in self.challenges if (text := challenge(request, header))]
            problem.headers["WWW-Authenticate"] = ", ".join([header, *parameters])

    async def authorize(self, caller: Caller, verb: Verb) -> Caller:
        """Return a resolved caller, who may do this as well. Raises HttpProblem: 403."""
        assert caller.sender is not None  # noqa: S101 - every resolved caller has one
        return await self.authenticator.authorize(caller.sender, namespace=caller.namespace, verb=verb)

    def limit_anonymous(self, request: HTTPConnection) -> str:
        """Count a request without a known caller and return its peer. Raises HttpProblem if the peer sent too many."""
        peer = find_peer(request, trusted=self.trusted_proxies)
        self.peer_limiter.take(peer)
        return peer

    async def _authenticate(self, request: Request, token: str, *, namespace: str | None, verb: Verb) -> Caller:
        sender = await self._identify(request, token)
        if isinstance(sender, ApiKey):
            for observe in self.key_observers:
                observe(sender)
            self.rate_limiter.check(sender)  # before the rights, so that rejected requests count
        requested = namespace or request.query_params.get("namespace") or None
        caller = await self.authenticator.authorize(sender, namespace=requested, verb=verb)
        if not isinstance(sender, ApiKey):
            self.rate_limiter.check(caller)  # a rule's limits are those of a namespace
        return caller

    async def _identify(self, request: Request, token: str) -> Sender:
        if self.authenticator.recognizes(token):  # a flood from the same address does not affect it
            return await self.authenticator.identify(token)
        peer = self.limit_anonymous(request)
        sender = await self.authenticator.identify(token)
        self.peer_limiter.give_back(peer)
        return sender


def check_user(user: str | None, *, caller: Caller) -> None:
    """Raise HttpProblem, a 403, if the caller may not name the user."""
    if user is None or caller.limits.allows_user(user):
        return
    message = f"{caller.title} may name only {', '.join(caller.limits.users or ()) or 'none'}"
    raise HttpProblem("forbidden", 403, f"user: {message}", errors=[FieldError(field="user", message=message)])


def find_owner(caller: Caller, user: str | None) -> Owner:
    """Return the owner that a caller is on behalf of a user. Raises HttpProblem, a 403, if it may not name the user."""
    check_user(user, caller=caller)
    return Owner(namespace=caller.namespace, caller=caller.label, user=user or "")


def may_see(caller: Caller, *, creator: str | None, user: str | None) -> bool:
    """Return whether a caller may see what a creator made for a user. `creator` is proven, or has the prefix CLAIMED.

    Every route on executions asks this, and answers as if what it denies did not exist.
    """
    return not caller.limits.sees_own_only or (creator == caller.label and caller.limits.allows_user(user))
