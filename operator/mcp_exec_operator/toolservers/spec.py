"""Validation of a ToolServer's spec. Pure functions."""

from pydantic import ValidationError

from mcp_exec_api.meta import field_errors, parse_quantity
from mcp_exec_api.reasons.server import ServerReason
from mcp_exec_api.tool_server import Stdio, ToolServerSpec
from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.toolservers.manifests import reserved_variables
from mcp_exec_operator.toolservers.workload import build_failure


class CannotRunServer(Exception):
    """The server can't be run as specified. `workload` is the status that says why."""

    def __init__(self, reason: ServerReason, message: str) -> None:
        super().__init__(message)
        self.workload = build_failure(reason, message)


def validate_stdio(body: Object, *, has_bridge: bool) -> Stdio | None:
    """Return the stdio server to run, or None if the ToolServer is not one. Raises CannotRunServer.

    `has_bridge` is whether the operator has an image with the bridge.
    """
    try:
        spec = ToolServerSpec.model_validate(body.get("spec") or {})
    except ValidationError as error:
        text = "; ".join(f"spec.{problem.field}: {problem.message}" for problem in field_errors(error, ToolServerSpec))
        raise CannotRunServer(ServerReason.INVALID_SPEC, text) from error
    if spec.stdio is None:
        return None
    if not has_bridge:
        message = "the operator has no image with the bridge; set MCP_EXEC_SERVERS_IMAGE"
        raise CannotRunServer(ServerReason.NO_SERVERS_IMAGE, message)
    try:
        parse_quantity(spec.stdio.data_size or "0")
    except ValueError as error:
        raise CannotRunServer(ServerReason.INVALID_SPEC, f"spec.stdio.dataSize: {error}") from error
    if reserved := reserved_variables(spec.stdio):
        message = f"spec.stdio.env: {', '.join(reserved)}: the prefix MCP_EXEC_ is reserved for the bridge"
        raise CannotRunServer(ServerReason.INVALID_SPEC, message)
    return spec.stdio
