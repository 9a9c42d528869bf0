"""Tokens that the broker accepts: grants of executions, of their files and of direct calls, and service tokens.

All are JSON Web Tokens (RFC 7519) signed with HMAC. Each kind has its own audience, so none passes for another.
"""

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from time import time
from typing import Annotated, ClassVar, Final, Literal, TypeVar

import jwt
from pydantic import Field, ValidationError

from mcp_exec_api.code_execution import CodeExecutionSpec
from mcp_exec_api.constants import DEFAULT_APPROVAL_SECONDS, MAX_APPROVAL_SECONDS, MAX_TIMEOUT_SECONDS
from mcp_exec_api.meta import Model
from mcp_exec_api.sandbox_pool import PoolTools
from mcp_exec_common.broker.files import SandboxGrant, SignedGrant
from mcp_exec_common.sandbox_keys import SandboxKeys

_ALGORITHM: Final = "HS256"
_SERVICE_AUDIENCE: Final = "mcp-exec-broker-control"
_SERVICE_TOKEN_SECONDS: Final = 60
_KEY_PREFIX: Final = b"mcp-exec grants:"
MAX_GRANT_SECONDS: Final = MAX_TIMEOUT_SECONDS + 120
"""Longest lifetime of a grant without waits for approvals: the longest run and the time for its binding and its end."""
MAX_FILES_GRANT_SECONDS: Final = MAX_GRANT_SECONDS + 180
"""Longest lifetime of a grant of files without waits for approvals: they travel before and after the run."""

MAX_DIRECT_SECONDS: Final = 120
"""Longest lifetime of the grant of direct calls."""
DIRECT_CALLS_PER_MINUTE: Final = 600
"""Direct calls of one caller in a minute, at one replica of the broker, unless its API key has a limit."""

ServiceName = Literal["operator", "gateway"]
"""Processes that use the broker's control interface."""


G = TypeVar("G", bound=SignedGrant)


class GrantError(Exception):
    """A token that is not valid. The message gives the reason and never the token."""


class CallRights(SignedGrant, ABC):
    """Rights to call tools, as each kind of grant contains them."""

    namespace: str
    """Namespace of the ToolServers, and of the execution if there is one."""
    pool: str
    """Name of the SandboxPool whose rules on tools apply."""
    caller: str | None = None
    """Caller, as authenticated by the gateway, or `claimed:` and a name that it did not write."""
    user: str | None = None
    """User on whose behalf the tools are called."""
    tools: list[str]
    """Tool patterns that the execution or the caller may use."""
    pool_tools: PoolTools
    """Tool patterns that the pool allows and denies."""

    @property
    @abstractmethod
    def account(self) -> str:
        """Key of the account for calls, their memory and their denials."""

    @property
    def token_account(self) -> str:
        """Key of the tokens that stand for personal data: who receives one may send it."""
        return self.account

    @property
    @abstractmethod
    def holder(self) -> str:
        """Who has the grant, for messages."""


class Grant(SandboxGrant, CallRights):
    """Rights of one execution to call tools: the sandbox's only credential. It expires shortly after the timeout."""

    audience: ClassVar[str] = "mcp-exec-broker"
    execution: str
    """Uid of the execution."""
    name: str
    """Name of the execution."""
    tool_calls: Annotated[int, Field(ge=0)]
    """Most tool calls."""
    approval_seconds: Annotated[int, Field(ge=0, le=MAX_APPROVAL_SECONDS)] = DEFAULT_APPROVAL_SECONDS
    """Seconds that calls may wait for approvals, in all. The broker adds to `expires` what they waited."""


class ApprovedCall(Model):
    """Consent to one direct call, given before it is made."""

    tool: str
    """SERVER.TOOL."""
    arguments_digest: str
    """Digest of the arguments that were shown."""
    by: str
    """Who approved it."""


class DirectGrant(CallRights):
    """Rights of a caller of the gateway to call tools without an execution. The gateway signs and sends it."""

    audience: ClassVar[str] = "mcp-exec-broker-direct"
    caller: str
    """Caller, as authenticated by the gateway."""
    conversation: Annotated[str | None, Field(max_length=253)] = None
    """Conversation of the calls, as the client names it."""
    calls_per_minute: Annotated[int, Field(ge=1)] = DIRECT_CALLS_PER_MINUTE
    """Direct calls of the caller in a minute, at one replica."""
    approved: ApprovedCall | None = None
    """Consent to the call, if it needs one."""

    @property
    def account(self) -> str:
        """The caller in its namespace."""
        return f"direct:{self.namespace}/{self.caller}"

    @property
    def token_account(self) -> str:
        """The caller with its user and conversation."""
        return f"{self.account}/{json.dumps([self.user, self.conversation])}"

    @property
    def holder(self) -> str:
        """Who has the grant, for messages."""
        return "the caller"


@dataclass(frozen=True, kw_only=True)
class GrantSigner:
    """Signs and verifies each kind of token, with keys derived from the release's `keys`."""

    keys: SandboxKeys

    def sign(self, grant: SignedGrant) -> str:
        """Return the signed token of a grant."""
        claims = {"aud": grant.audience, "exp": grant.expires, "grant": grant.to_api()}
        return jwt.encode(claims, _KEY_PREFIX + self.keys.signing, algorithm=_ALGORITHM)

    def read(self, kind: type[G], token: str, *, checks_expiry: bool = True) -> G:
        """Verify a token and return its grant of this kind. Raises GrantError.

        Without `checks_expiry`, the caller must compare `expires` with the time that has passed for the execution.
        """
        try:
            claims = self._read_claims(token, kind.audience, checks_expiry=checks_expiry)
            return kind.model_validate(claims.get("grant"))
        except ValidationError as error:
            raise GrantError(f"the token contains no valid grant for {kind.audience}") from error

    def sign_service_token(self, service: ServiceName) -> str:
        """Return a signed token of the operator or the gateway, valid for one minute."""
        claims = {"aud": _SERVICE_AUDIENCE, "exp": int(time()) + _SERVICE_TOKEN_SECONDS, "sub": service}
        return jwt.encode(claims, _KEY_PREFIX + self.keys.signing, algorithm=_ALGORITHM)

    def read_service_token(self, token: str) -> str:
        """Verify a service token and return the name of its service. Raises GrantError."""
        return str(self._read_claims(token, _SERVICE_AUDIENCE).get("sub"))

    def _read_claims(self, token: str, audience: str, *, checks_expiry: bool = True) -> dict[str, object]:
        problem: jwt.InvalidTokenError | None = None
        for key in self.keys:
            try:
                return jwt.decode(
                    token,
                    _KEY_PREFIX + key,
                    algorithms=[_ALGORITHM],
                    audience=audience,
                    options={"require": ["exp"], "verify_exp": checks_expiry},
                )
            except jwt.InvalidTokenError as error:
                problem = error
                if not isinstance(error, jwt.InvalidSignatureError):
                    break
        raise GrantError(f"the token is not valid: {problem}") from problem


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
        approval_seconds=spec.approval_timeout_seconds,
    )
