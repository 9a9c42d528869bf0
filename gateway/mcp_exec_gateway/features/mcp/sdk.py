"""Parts of the MCP SDK that its documentation does not promise, in one place.

The endpoint /mcp serves requests by the SDK's handlers, but has a transport of its own, because replicas share no
state. The dependency names one minor version, and tests/unit/test_private_parts.py fails first if a part has changed.
"""

from mcp.server.connection import Connection
from mcp.server.runner import serve_one
from mcp.shared.dispatcher import CallOptions, as_request_id
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.inbound import (
    ERROR_CODE_HTTP_STATUS,
    MCP_PROTOCOL_VERSION_HEADER,
    InboundLadderRejection,
    classify_inbound_request,
    find_duplicated_routing_header,
    unsupported_protocol_version_rejection,
)
from mcp.shared.jsonrpc_dispatcher import handler_exception_to_error_data, progress_token_from_params
from mcp.shared.message import MessageMetadata, ServerMessageMetadata
from mcp.shared.transport_context import TransportContext

__all__ = [
    "ERROR_CODE_HTTP_STATUS",
    "MCP_PROTOCOL_VERSION_HEADER",
    "CallOptions",
    "Connection",
    "InboundLadderRejection",
    "MessageMetadata",
    "NoBackChannelError",
    "ServerMessageMetadata",
    "TransportContext",
    "as_request_id",
    "classify_inbound_request",
    "find_duplicated_routing_header",
    "handler_exception_to_error_data",
    "progress_token_from_params",
    "serve_one",
    "unsupported_protocol_version_rejection",
]
