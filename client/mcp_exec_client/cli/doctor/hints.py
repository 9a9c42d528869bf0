"""Hints for the reasons of executions, pools and ToolServers, and for problems of the gateway."""

from typing import Final

from mcp_exec_api.reasons.execution import Reason
from mcp_exec_api.reasons.server import find_server_reason

PROBLEMS: Final[dict[str, str]] = {
    "unauthenticated": (
        "check whether the key was removed or rotated; the chart's notes say how to get the first one; a "
        "ServiceAccount's token needs the audience of gateway.audience"
    ),
    "forbidden": "use a key of that namespace whose limits allow it",
    "rate-limited": "wait a minute, or raise the key's `requestsPerMinute`",
    "too-many": "wait until executions have ended, or raise the key's `maxConcurrent`",
    "queue-full": Reason.QUEUE_FULL.remedy,
    "invalid": "correct the field that the message names",
    "unavailable": "check the component that the message names: kubectl get pods in the release's namespace",
}
"""Hints by the type of a gateway's problem."""

FALLBACK_HINT: Final = "see docs/kubectl/troubleshooting.md"
_SERVERS_PAGE: Final = "see docs/platform/tool-servers.md#status"
_BY_REASON: Final[dict[str, str]] = {str(reason): reason.remedy for reason in Reason}


def hint_for_reason(reason: str) -> str:
    """Return the hint for an execution or a pool with that reason."""
    return _BY_REASON.get(reason, FALLBACK_HINT)


def hint_for_server_reason(reason: str) -> str:
    """Return the hint for a ToolServer with that reason, and the page that explains it."""
    known = find_server_reason(reason)
    return f"{known.remedy} ({_SERVERS_PAGE})" if known is not None else _SERVERS_PAGE
