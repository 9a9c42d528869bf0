"""Errors of the client: one class for each kind of failure that a caller may handle differently."""

from collections.abc import Mapping, Sequence
from typing import Final

from mcp_exec_api.meta import FieldError

OTHER_KIND: Final = "http"
"""Kind of a problem that the gateway did not describe."""


class McpExecError(Exception):
    """Base of all errors of the client. The text is a complete message for people."""

    execution: str | None = None
    """Name of the execution concerned, if one exists or may exist."""
    may_have_arrived: bool = False
    """Whether the gateway may have acted on the request although there is no response."""
    _more: str = ""

    def __str__(self) -> str:
        return super().__str__() + self._more

    def add_text(self, text: str) -> None:
        """Add to the text, for example what the failure means for the code."""
        self._more += text


class ClientMisconfigured(McpExecError, ValueError):
    """An address or a key that cannot be those of a gateway."""


class GatewayUnreachable(McpExecError):
    """No complete response from the gateway. The text has the request's address and the reason."""


class UnexpectedResponse(McpExecError):
    """A response that is not the gateway's, or that is larger than any of its responses."""


class WaitExpired(McpExecError):
    """An execution did not end within the client's wait. `execution` is its name."""


class GatewayError(McpExecError):
    """A response that reports a problem (RFC 9457). A subclass exists for each kind that needs its own handling."""

    def __init__(
        self,
        detail: str,
        *,
        kind: str,
        status: int,
        errors: Sequence[FieldError] = (),
        execution: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"{status} {kind}: {detail}")
        self.detail = detail
        self.kind = kind
        """Kind of the problem, for example `queue-full`; docs/kubectl/troubleshooting.md lists them."""
        self.status = status
        """HTTP status code."""
        self.errors = list(errors)
        """Invalid fields of the request, with what is allowed."""
        self.execution = execution
        self.retry_after = retry_after
        """Seconds until the gateway expects a retry to succeed."""

    @property
    def is_of_proxy(self) -> bool:
        """Whether the response is not the gateway's own, but for example that of an ingress in front of it."""
        return self.kind == OTHER_KIND


class RequestInvalid(GatewayError):
    """A request that the gateway does not accept, for example because of a field's value; `errors` names the fields."""


class CodeRefused(RequestInvalid):
    """Code that the pool's static check rejects; `errors` has the findings."""


class Unauthenticated(GatewayError):
    """A missing, wrong or removed API key or token."""


class Forbidden(GatewayError):
    """A request that the caller has no right to."""


class NotFound(GatewayError):
    """An object that does not exist, or not in the caller's namespace."""


class Conflict(GatewayError):
    """A name or an Idempotency-Key that another execution has, or a deletion of an execution that has not ended."""


class Outdated(Conflict):
    """A write whose `if_match` or `must_be_new` does not hold: others changed the file or the workspace."""

    def explain(self, cause: str) -> None:
        """Add to the text what else may be the cause."""
        self.args = (f"{self}; {cause}",)


class AlreadyDecided(Conflict):
    """A decision on an approval that is decided, expired or withdrawn."""


class Gone(GatewayError):
    """An execution that was deleted during the wait."""


class TooManyRequests(GatewayError):
    """A limit of the caller or the gateway that retries did not outlast; `kind` says which."""


class PoolQueueFull(TooManyRequests):
    """A pool whose queue is full. Another pool may have room."""


class Unavailable(GatewayError):
    """A gateway, or a component behind it, that does not work at the moment."""


_BY_KIND: Final[Mapping[str, type[GatewayError]]] = {
    "code-refused": CodeRefused,
    "language-not-checked": CodeRefused,
    "key-reused": Conflict,
    "decided": AlreadyDecided,
    "queue-full": PoolQueueFull,
}
_BY_STATUS: Final[Mapping[int, type[GatewayError]]] = {
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    412: Outdated,
    429: TooManyRequests,
}


def find_error_class(kind: str, status: int) -> type[GatewayError]:
    """Return the class for a kind of problem, or for the status if the kind is unknown."""
    by_status = _BY_STATUS.get(status, Unavailable if status >= 500 else RequestInvalid)
    return _BY_KIND.get(kind, by_status)


def add_execution(error: McpExecError, name: str) -> None:
    """Name the execution that a failed request was about, and that it goes on if only the gateway failed."""
    error.execution = error.execution or name
    if isinstance(error, GatewayUnreachable | Unavailable | TooManyRequests):
        error.add_text(f"; execution {name} goes on")
