"""Cancellation by a notification, which may reach another replica than the request that it cancels.

Revisions with sessions cancel a request by its id. Each execution is labelled with a digest of the request's caller,
session and id, so every replica finds it. A direct call has no execution: only the replica that makes it finds it. In
revision 2026-07-28 a client cancels a request by closing its connection.

Clients also send the notification when they give up waiting. The reason that they state separates the two: who
gave up may ask again.
"""

import hashlib
import re
from typing import Any, Final

from mcp_types import RequestId

from mcp_exec_api.constants import EXECUTIONS, LABEL_MCP_REQUEST
from mcp_exec_common.kube.client import custom_resource_path
from mcp_exec_gateway.executions.abandoned_runs import Departure
from mcp_exec_gateway.mcp.request import McpRequest, Sender, choose_departure
from mcp_exec_gateway.mcp.sdk import as_request_id
from mcp_exec_gateway.mcp.transport.messages import RpcMessage, Session

_DIGEST_CHARACTERS: Final = 40
_GAVE_UP: Final = re.compile(r"\btimed?[ -]?out\b", re.IGNORECASE)
"""Reason of a client that waited for as long as it waits, as the SDKs for Python and TypeScript state it."""
_MAX_REASON: Final = 500


def mark_request(request: McpRequest) -> dict[str, str]:
    """Return the label of executions that a request creates; none if the request cannot be cancelled by its id."""
    digest = digest_request(request)
    return {} if digest is None else {LABEL_MCP_REQUEST: digest}


def digest_request(request: McpRequest) -> str | None:
    """Return a digest of a request's caller, session and id, or None if it cannot be cancelled by its id."""
    if request.session is None or request.exchange.request_id is None:
        return None
    return _digest(request.sender, request.session, request.exchange.request_id)


async def cancel_request(sender: Sender, session: Session, message: RpcMessage) -> None:
    """Cancel the direct call or the execution of a request of this session, if it has one that runs.

    An execution whose client gave up waiting is cancelled only if the client does not ask for it again.
    """
    request_id = as_request_id(message.params.get("requestId"))
    if request_id is None:
        return
    digest = _digest(sender, session, request_id)
    if sender.dependencies.running_calls.cancel(digest):
        return
    selector = f"{LABEL_MCP_REQUEST}={digest}"
    path = custom_resource_path(EXECUTIONS, namespace=sender.namespace)
    dependencies = sender.dependencies
    page = await dependencies.kube.get_table(path, limit=1, token=None, selector=selector)
    for row in page.rows:
        metadata: Any = row.metadata
        if dependencies.attestor.read_listed_caller(metadata) == sender.caller.label:
            sender.trace_execution(metadata["name"])
            key = (sender.namespace, metadata["name"])
            if gave_up(message.params.get("reason")):
                departure = choose_departure(sender.options, default=Departure.CANCEL_LATER)
                await dependencies.abandoned.leave(key, holder=None, departure=departure)
            else:
                await dependencies.executions.request_cancellation(key)


def gave_up(reason: object) -> bool:
    """Return whether the reason of a cancellation is that the client has waited for as long as it waits."""
    return isinstance(reason, str) and _GAVE_UP.search(reason[:_MAX_REASON]) is not None


def _digest(sender: Sender, session: Session, request_id: RequestId) -> str:
    content = (sender.namespace, sender.caller.name, session.id, type(request_id).__name__, str(request_id))
    return hashlib.sha256("\0".join(content).encode()).hexdigest()[:_DIGEST_CHARACTERS]
