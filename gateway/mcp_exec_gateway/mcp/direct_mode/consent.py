"""Consent to direct calls: the client shows its user the call, and repeats it with the decision.

A direct call has no execution in which it could wait. In revision 2026-07-28 the request itself is repeated with what
the user decided; the revisions before would have to keep the call at one replica, so they get an error that says what
to do.
"""

from typing import Any, Final

from mcp_types import CallToolRequestParams, CallToolResult, InputRequiredResult

from mcp_exec_api.approvals import ApprovalChoice
from mcp_exec_common.broker.grants import ApprovedCall
from mcp_exec_common.kube.objects import Object
from mcp_exec_gateway.mcp.direct_mode.results import build_error
from mcp_exec_gateway.mcp.forms import build_form, read_decision
from mcp_exec_gateway.mcp.request import McpRequest
from mcp_exec_gateway.mcp.transport.tokens import ConsentToken
from mcp_exec_gateway.tools.exported import ExportedTool

_FORM_KEY: Final = "approval"


async def ask_for_consent(request: McpRequest, answer: Object) -> CallToolResult | InputRequiredResult:
    """Return the form for a call that needs an approval, or the error if the client can show none."""
    shown: Any = answer.get("approval")
    approval: Object = shown if isinstance(shown, dict) else {}
    tool, digest = str(approval.get("tool")), str(approval.get("argumentsDigest"))
    if not (request.is_modern and request.elicitation and await request.sender.may("approve")):
        return build_error(
            f"{tool} needs an approval, for which a direct call does not wait. Call it by code with run_code (mode "
            "code or hybrid): there the call waits until somebody approves it. Or use a client of revision 2026-07-28 "
            "that can show forms, with an API key or account that may approve.",
            reason="ApprovalRequired",
        )
    return InputRequiredResult(
        input_requests={_FORM_KEY: build_form(f"Call {tool}", approval)},
        request_state=str(ConsentToken(tool=tool, digest=digest)),
    )


async def read_consent(
    request: McpRequest, params: CallToolRequestParams, tool: ExportedTool
) -> ApprovedCall | CallToolResult | None:
    """Return the consent that a repeated request carries, the error if its user denied the call, or None.

    Raises HttpProblem: 403 if the caller may not approve, 422 if the state is not from this gateway.
    """
    if params.request_state is None:
        return None
    token = ConsentToken.parse(params.request_state)
    response = (params.input_responses or {}).get(_FORM_KEY)
    filled = None if response is None else response.model_dump(by_alias=True, mode="json")
    decision = read_decision(filled, digest=token.digest)
    if decision is None:
        return build_error(f"{tool.path} was not approved: the form was not filled in", reason="NotApproved")
    caller = await request.sender.authorize("approve")
    if decision.decision is ApprovalChoice.DENY:
        comment = f": {decision.comment}" if decision.comment else ""
        return build_error(f"{tool.path} was not approved by {caller.name}{comment}", reason="NotApproved")
    return ApprovedCall(tool=token.tool, arguments_digest=token.digest, by=caller.name)
