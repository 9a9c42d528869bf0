"""Who calls, and for which namespace: API keys and ServiceAccount tokens."""

from dataclasses import dataclass, field
from typing import Literal

from mcp_exec_gateway.auth.api_keys import KEY_PREFIX, ApiKey, ApiKeys, KeyLimits
from mcp_exec_gateway.auth.service_accounts import Tokens, User, token_problem
from mcp_exec_gateway.executions.naming import caller_label
from mcp_exec_gateway.http.problems import Problem

Verb = Literal["create", "get", "list", "patch", "approve"]
"""What is done with executions, in the API server's words; `approve` is to `update` the subresource `approval`."""


@dataclass(frozen=True, kw_only=True)
class Caller:
    """One that may do what was asked, in one namespace."""

    name: str
    """The key's name, or the user's."""
    label: str
    """The name as a label value."""
    namespace: str
    """The namespace of all that the caller sees and runs in this request."""
    limits: KeyLimits = field(default_factory=KeyLimits)
    """The key's bounds."""


@dataclass(frozen=True, kw_only=True)
class Authenticator:
    """Tells callers by the Authorization header."""

    keys: ApiKeys
    tokens: Tokens
    namespaces: frozenset[str]
    """The namespaces that are served."""

    async def caller(self, *, header: str, namespace: str | None, verb: Verb) -> Caller:
        """The caller, who may do this in the namespace asked for (None: the caller's own).

        Raises Problem: 401 where the credentials are not good, 403 where they don't reach that far.
        """
        scheme, _, credential = header.partition(" ")
        credential = credential.strip()
        if scheme.lower() != "bearer" or not credential:
            raise token_problem()
        if credential.startswith(KEY_PREFIX):
            key = self.keys.find(credential)
            if key is None:
                raise token_problem()
            return self._by_key(key, namespace, verb)
        user = await self.tokens.user(credential)
        if user is None:
            raise token_problem()
        return await self._by_token(user, namespace, verb)

    def _by_key(self, key: ApiKey, namespace: str | None, verb: Verb) -> Caller:
        own = key.entry.namespace
        if namespace is not None and namespace != own:
            raise _forbidden(f"the API key {key.name} works in namespace {own} alone, not in {namespace}")
        self._check_served(own)
        if verb == "approve" and not key.entry.approver:
            raise _forbidden(f"the API key {key.name} is no approver")
        return Caller(name=key.name, label=caller_label(key.name), namespace=own, limits=key.entry.limits)

    async def _by_token(self, user: User, namespace: str | None, verb: Verb) -> Caller:
        chosen = namespace or user.namespace
        self._check_served(chosen)
        done, subresource = ("update", "approval") if verb == "approve" else (verb, "")
        if not await self.tokens.allowed(user, verb=done, namespace=chosen, subresource=subresource):
            what = "codeexecutions.mcp-exec.dev" + (f"/{subresource}" if subresource else "")
            raise _forbidden(f"{user.name} may not {done} {what} in namespace {chosen}")
        return Caller(name=user.name, label=caller_label(user.name), namespace=chosen)

    def _check_served(self, namespace: str) -> None:
        if namespace not in self.namespaces:
            raise _forbidden(f"namespace {namespace} is not served by this gateway")


def _forbidden(detail: str) -> Problem:
    return Problem("forbidden", 403, detail)
