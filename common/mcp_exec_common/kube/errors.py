"""Errors of the Kubernetes client."""

from mcp_exec_common.kube.objects import Object


class ApiError(Exception):
    """A request that the API server rejected.

    `code` is the HTTP status; `reason` (for programs), `message` (for people) and `details` are those of the Status.
    """

    def __init__(self, *, code: int, reason: str = "", message: str = "", details: Object | None = None) -> None:
        super().__init__(f"{code} {reason}: {message}")
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details or {}


class ApiUnreachable(ApiError):
    """A request without a response after all retries. The API server may have carried it out. `code` is 0."""

    def __init__(self, message: str) -> None:
        super().__init__(code=0, reason="Unreachable", message=message)


class AnswerTooLarge(ApiError):
    """An answer that was not read to its end, because it is larger than one of the API server can be. `code` is 0."""

    def __init__(self, message: str) -> None:
        super().__init__(code=0, reason="TooLarge", message=message)
