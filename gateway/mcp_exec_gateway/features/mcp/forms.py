"""Forms of a client that ask its user to approve a tool call (elicitation), and what they return."""

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from mcp_types import ElicitRequest, ElicitRequestFormParams

from mcp_exec_api.approvals import ApprovalChoice, ApprovalState
from mcp_exec_api.wire.executions import NewDecision
from mcp_exec_common.kube.objects import Object
from mcp_exec_gateway.core.http.json import replace_surrogates
from mcp_exec_gateway.core.http.problems import HttpProblem
from mcp_exec_gateway.features.mcp.request import Sender
from mcp_exec_gateway.features.mcp.transport.tokens import ApprovalToken
from mcp_exec_gateway.features.tools.approvals import decide_approval, list_approvals

log = logging.getLogger(__name__)

_MAX_ARGUMENTS: Final = 16 * 1024
"""Maximum length of the shown arguments. What the broker shows is shorter."""
_DIGEST_DIGITS: Final = 12
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
    """Return the form for one call. `question` comes before its arguments, `note` after them.

    The code chooses the arguments, so what they can't imitate or push away comes first: the number and the names of
    the parameters, size and digest of all arguments, and whether anything is left out.
    """
    text = str(approval.get("arguments", ""))
    shown = text[:_MAX_ARGUMENTS]
    is_complete = len(shown) == len(text) and approval.get("argumentsComplete", True) is True
    lines = [
        f"{question} with {_describe_names(shown)}",
        f"Size: {approval.get('argumentsBytes', 'unknown')} bytes. Digest: {_shorten_digest(approval)}. "
        + (
            "All arguments are shown."
            if is_complete
            else "Not all of the arguments are shown: deny what you can't see."
        ),
        f"Arguments: {shown}",
    ]
    message = "\n".join(lines) + note
    return ElicitRequest(params=ElicitRequestFormParams(message=replace_surrogates(message), requested_schema=_SCHEMA))


def _describe_names(arguments: str) -> str:
    """Return the names of the parameters, as the broker shows them: quoted, escaped and each at most 48 characters."""
    names: Any = None
    with suppress(ValueError, RecursionError):
        # Of each object its names, of the outer one in the end. Two that are cut may be equal.
        names = json.loads(arguments, object_pairs_hook=lambda pairs: [name for name, _ in pairs])
    if not isinstance(names, list):
        return "parameters whose names are not known."
    return f"the parameters {', '.join(map(json.dumps, names))}." if names else "no parameters."


def _shorten_digest(approval: Object) -> str:
    return str(approval.get("argumentsDigest", "unknown"))[: len("sha256:") + _DIGEST_DIGITS]


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


def list_pending(sender: Sender, execution: Object) -> list[Object]:
    """Return the approvals of an execution that wait for a decision."""
    approvals = list_approvals(execution, attestor=sender.dependencies.attestor)
    return [approval for approval in approvals if approval["state"] == ApprovalState.PENDING]


def build_approval_form(execution: str, approval: Object) -> ElicitRequest:
    """Return the form for one approval of an execution."""
    question = f"The code of {execution} wants to call {approval['tool']}"
    return build_form(question, approval, note=f"\nWithout a decision it is denied at {approval['expiresAt']}.")


def has_decision(params: Mapping[str, Any]) -> bool:
    """Return whether the parameters of a request carry a filled form."""
    answers = params.get("inputResponses")
    return isinstance(answers, dict) and any(read_decision(each, digest="") is not None for each in answers.values())


async def decide(sender: Sender, token: ApprovalToken, answer: Any) -> None:
    """Record the decision of a filled form. Raises HttpProblem if the caller may not decide."""
    decision = read_decision(answer, digest=token.digest)
    if decision is None:
        return
    caller = await sender.authorize("approve")
    sender.trace_execution(token.execution)
    dependencies = sender.dependencies
    try:
        await decide_approval(
            dependencies.kube,
            token.execution,
            approval_id=token.approval,
            decision=decision,
            caller=caller,
            attestor=dependencies.attestor,
        )
    except HttpProblem as problem:
        if problem.status not in (404, 409):
            raise
        # somebody else was faster, or the time is over: the run shows what became of the call
        log.info("a decision came too late: %s", problem.detail)
