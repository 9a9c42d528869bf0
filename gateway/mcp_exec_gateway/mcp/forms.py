"""Forms by which a client asks its user to approve a tool call (elicitation), and what they return."""

from typing import Any, Final

from mcp_types import ElicitRequest, ElicitRequestFormParams

from mcp_exec_api.approvals import ApprovalChoice
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.util.text import shorten
from mcp_exec_gateway.executions.approvals import NewDecision
from mcp_exec_gateway.http.json import replace_surrogates

_MAX_ARGUMENTS: Final = 2000
_MAX_COMMENT: Final = 1024
_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "decision": {
            "type": "string",
            "title": "Decision",
            "enum": [choice.value for choice in ApprovalChoice],
            "description": "Approve: the call is made. Deny: it fails.",
        },
        "comment": {
            "type": "string",
            "title": "Comment",
            "maxLength": _MAX_COMMENT,
            "description": "Reason; the code receives it if you deny",
        },
    },
    "required": ["decision"],
}


def build_form(question: str, approval: Object, *, note: str = "") -> ElicitRequest:
    """Return the form for one call. `question` comes before its arguments, `note` after them."""
    complete = "" if approval.get("argumentsComplete", True) else " (not all of them)"
    arguments = shorten(str(approval.get("arguments", "")), _MAX_ARGUMENTS)
    message = f"{question} with these arguments{complete}: {arguments}{note}"
    return ElicitRequest(params=ElicitRequestFormParams(message=replace_surrogates(message), requested_schema=_SCHEMA))


def read_decision(answer: Any, *, digest: str) -> NewDecision | None:
    """Return the decision of a filled form, or None if the user dismissed it or its content is not valid."""
    if not isinstance(answer, dict):
        return None
    content: Any = answer.get("content")
    content = content if isinstance(content, dict) else {}
    choice = {"accept": content.get("decision"), "decline": ApprovalChoice.DENY.value}.get(str(answer.get("action")))
    if choice not in (ApprovalChoice.APPROVE, ApprovalChoice.DENY):
        return None
    comment = content.get("comment")
    return NewDecision(
        decision=ApprovalChoice(choice),
        arguments_digest=digest or None,
        comment=comment[:_MAX_COMMENT] if isinstance(comment, str) and comment else None,
    )
