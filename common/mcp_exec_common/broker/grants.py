"""Tokens that the broker accepts: grants of executions, and service tokens of operator and gateway.

Both are JSON Web Tokens (RFC 7519) signed with HMAC. Each kind has its own audience, so none passes for the other.
"""

from dataclasses import dataclass
from time import time
from typing import Annotated, Final, Literal

import jwt
from pydantic import Field, ValidationError

from mcp_exec_api.code_execution import CodeExecutionSpec
from mcp_exec_api.constants import MAX_TIMEOUT_SECONDS
from mcp_exec_api.meta import Model
from mcp_exec_api.sandbox_pool import PoolTools

_ALGORITHM: Final = "HS256"
_GRANT_AUDIENCE: Final = "mcp-exec-broker"
_SERVICE_AUDIENCE: Final = "mcp-exec-broker-control"
_SERVICE_TOKEN_SECONDS: Final = 60
_KEY_PREFIX: Final = b"mcp-exec grants:"
MAX_GRANT_SECONDS: Final = MAX_TIMEOUT_SECONDS + 120
"""Longest lifetime of a grant: the longest run and the time for its binding and its end."""

ServiceName = Literal["operator", "gateway"]
"""Processes that use the broker's control interface."""


class GrantError(Exception):
    """A token that is not valid. The message gives the reason and never the token."""


class Grant(Model):
    """Rights of one execution to call tools: the sandbox's only credential. It expires shortly after the timeout."""

    execution: str
    """Uid of the execution."""
    name: str
    """Name of the execution."""
    namespace: str
    """Namespace of the execution and of its ToolServers."""
    pool: str
    """Name of its SandboxPool."""
    caller: str | None = None
    """Caller who created it, as authenticated by the gateway, or `claimed:` and a name that it did not write."""
    user: str | None = None
    """User on whose behalf the code runs."""
    tools: list[str]
    """Tool patterns from `spec.tools` of the execution."""
    pool_tools: PoolTools
    """Tool patterns that its pool allows and denies."""
    tool_calls: Annotated[int, Field(ge=0)]
    """Most tool calls."""
    pod_address: str
    """IP address of the sandbox, the only one whose calls are accepted."""
    replica: str
    """Uid of the broker's pod, the only one that accepts the grant: it alone counts the execution's calls."""
    expires: int
    """Expiry in seconds since 1970."""


@dataclass(frozen=True, kw_only=True)
class GrantSigner:
    """Signs and verifies both kinds of token, with a key derived from the release's `key`."""

    key: bytes

    def sign_grant(self, grant: Grant) -> str:
        """Return the signed token of a grant."""
        claims = {"aud": _GRANT_AUDIENCE, "exp": grant.expires, "grant": grant.to_api()}
        return jwt.encode(claims, _KEY_PREFIX + self.key, algorithm=_ALGORITHM)

    def read_grant(self, token: str) -> Grant:
        """Verify a token and return its grant. Raises GrantError."""
        try:
            return Grant.model_validate(self._read_claims(token, _GRANT_AUDIENCE).get("grant"))
        except ValidationError as error:
            raise GrantError("the token contains no valid grant") from error

    def sign_service_token(self, service: ServiceName) -> str:
        """Return a signed token of the operator or the gateway, valid for one minute."""
        claims = {"aud": _SERVICE_AUDIENCE, "exp": int(time()) + _SERVICE_TOKEN_SECONDS, "sub": service}
        return jwt.encode(claims, _KEY_PREFIX + self.key, algorithm=_ALGORITHM)

    def read_service_token(self, token: str) -> str:
        """Verify a service token and return the name of its service. Raises GrantError."""
        return str(self._read_claims(token, _SERVICE_AUDIENCE).get("sub"))

    def _read_claims(self, token: str, audience: str) -> dict[str, object]:
        try:
            return jwt.decode(
                token, _KEY_PREFIX + self.key, algorithms=[_ALGORITHM], audience=audience, options={"require": ["exp"]}
            )
        except jwt.InvalidTokenError as error:
            raise GrantError(f"the token is not valid: {error}") from error


def build_grant(
    spec: CodeExecutionSpec,
    *,
    uid: str,
    name: str,
    namespace: str,
    pool_tools: PoolTools,
    caller: str | None,
    pod_address: str,
    replica: str,
    expires: int,
) -> Grant:
    """Build the grant of an execution from its spec, its pool, its pod and the broker's replica."""
    return Grant(
        execution=uid,
        name=name,
        namespace=namespace,
        pool=spec.pool_ref.name,
        caller=caller,
        user=spec.user,
        tools=list(spec.tools),
        pool_tools=pool_tools,
        tool_calls=spec.limits.tool_calls,
        pod_address=pod_address,
        replica=replica,
        expires=expires,
    )
