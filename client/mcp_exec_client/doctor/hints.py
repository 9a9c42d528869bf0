"""Hints for the reasons of executions, pools and servers, and for problems of the gateway."""

from typing import Final

from mcp_exec_api.reasons import Reason

SERVERS: Final = {
    "Starting": "wait for its pod",
    "CrashLoop": "read the message, which has the server's last output",
    "CreateContainerConfigError": "create the Secret and the key that the message names",
    "NoServersImage": "set the chart's `servers.image`",
}
"""Hints by a ToolServer's reason, if that is not an execution's reason."""

PROBLEMS: Final[dict[str, str]] = {
    "unauthenticated": "check whether the key was removed or rotated; the chart's notes say how to get the first one",
    "forbidden": "use a key of that namespace whose limits allow it",
    "rate-limited": "wait a minute, or raise the key's `requestsPerMinute`",
    "too-many": "wait until executions have ended, or raise the key's `maxConcurrent`",
    "queue-full": Reason.QUEUE_FULL.remedy,
    "invalid": "correct the field that the message names",
    "unavailable": "check the component that the message names: kubectl get pods in the release's namespace",
}
"""Hints by the type of a gateway's problem."""

FALLBACK_HINT: Final = "see docs/kubectl/troubleshooting.md"
_BY_REASON: Final[dict[str, str]] = {**SERVERS, **{str(reason): reason.remedy for reason in Reason}}


def hint_for_reason(reason: str) -> str:
    """Return the hint for an execution, a pool or a server with that reason."""
    return _BY_REASON.get(reason, FALLBACK_HINT)
