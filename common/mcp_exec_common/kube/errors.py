"""Errors of the API server's client."""

from mcp_exec_common.kube.objects import Object


class ApiError(Exception):
    """The API server refused a request.

    `code` is the HTTP status, `reason` the machine-readable word of its Status object, `message` its sentence.
    """

    def __init__(self, *, code: int, reason: str = "", message: str = "", details: Object | None = None) -> None:
        super().__init__(f"{code} {reason}: {message}")
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details or {}


class ApiUnreachable(ApiError):
    """The API server did not answer, after all retries. Whether it carried the request out is not known."""

    def __init__(self, message: str) -> None:
        super().__init__(code=0, reason="Unreachable", message=message)
