"""What proves to the broker who calls: the grant of an execution, and the badge of operator and gateway.

Both are JSON Web Tokens (RFC 7519), signed by HMAC with the release's key, and each good for one audience alone.
"""

from dataclasses import dataclass
from time import time
from typing import Annotated, Final, Literal

import jwt
from pydantic import Field, ValidationError

from mcp_exec_api.code_execution import CodeExecutionSpec
from mcp_exec_api.meta import Model
from mcp_exec_api.sandbox_pool import PoolTools

_ALGORITHM: Final = "HS256"
_GRANT_AUDIENCE: Final = "mcp-exec-broker"
_BADGE_AUDIENCE: Final = "mcp-exec-broker-control"
_BADGE_SECONDS: Final = 60
_DERIVED: Final = b"mcp-exec grants:"

ServiceName = Literal["operator", "gateway"]
"""Who has a badge."""


class GrantError(Exception):
    """The token is no good; the text says why, without it."""


class Grant(Model):
    """What one execution may do with tools. It is all that a sandbox has, and good until shortly after its time-out."""

    execution: str
    """The execution's uid."""
    name: str
    """Its name."""
    namespace: str
    """Its namespace, in which its ToolServers are."""
    pool: str
    """Its pool."""
    caller: str | None = None
    """Who created it, as the gateway knows them."""
    user: str | None = None
    """On whose behalf."""
    tools: list[str]
    """What the execution asked for."""
    pool_tools: PoolTools
    """What its pool allows."""
    tool_calls: Annotated[int, Field(ge=0)]
    """How many calls it may make."""
    expires: int
    """Seconds since 1970 at which it is void."""


@dataclass(frozen=True, kw_only=True)
class GrantSigner:
    """Makes and reads both kinds of token. The key is that of the sandboxes' tokens, from which its own is derived."""

    key: bytes

    def grant(self, grant: Grant) -> str:
        """The execution's token."""
        claims = {"aud": _GRANT_AUDIENCE, "exp": grant.expires, "grant": grant.to_api()}
        return jwt.encode(claims, _DERIVED + self.key, algorithm=_ALGORITHM)

    def read_grant(self, token: str) -> Grant:
        """What the token grants. Raises GrantError."""
        try:
            return Grant.model_validate(self._claims(token, _GRANT_AUDIENCE).get("grant"))
        except ValidationError as error:
            raise GrantError("the token grants nothing that is known here") from error

    def service_token(self, bearer: ServiceName) -> str:
        """A token of the operator or the gateway, good for a minute."""
        claims = {"aud": _BADGE_AUDIENCE, "exp": int(time()) + _BADGE_SECONDS, "sub": bearer}
        return jwt.encode(claims, _DERIVED + self.key, algorithm=_ALGORITHM)

    def read_service_token(self, token: str) -> str:
        """Whose badge it is. Raises GrantError."""
        return str(self._claims(token, _BADGE_AUDIENCE).get("sub"))

    def _claims(self, token: str, audience: str) -> dict[str, object]:
        try:
            return jwt.decode(
                token, _DERIVED + self.key, algorithms=[_ALGORITHM], audience=audience, options={"require": ["exp"]}
            )
        except jwt.InvalidTokenError as error:
            raise GrantError(f"the token is not good: {error}") from error


def build_grant(
    spec: CodeExecutionSpec,
    *,
    uid: str,
    name: str,
    namespace: str,
    pool_tools: PoolTools,
    caller: str | None,
    expires: int,
) -> Grant:
    """What an execution is granted by its spec and its pool."""
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
        expires=expires,
    )
