"""Arguments of `run_code` as the spec of an execution."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mcp_exec_api.wire.executions import NewExecution
from mcp_exec_gateway.http.problems import HttpProblem
from mcp_exec_gateway.http.request_body import parse_spec
from mcp_exec_gateway.mcp.code_mode.discovery import InvalidArguments, check_names
from mcp_exec_gateway.mcp.code_mode.output import choose_output_bytes
from mcp_exec_gateway.mcp.code_mode.skills import REFERENCE, SkillReference
from mcp_exec_gateway.mcp.request import McpRequest
from mcp_exec_tools.patterns import is_within

_FIELDS: Final = {
    "code": "code",
    "context": "context",
    "tools": "tools",
    "timeout": "timeoutSeconds",
    "description": "description",
    "session": "session",
    "workspace": "workspace",
}
"""Field of the spec that an argument sets."""
_NAMES: Final = {field: name for name, field in _FIELDS.items()}
_EVERY_TOOL: Final = ["*.*"]


def parse_arguments(request: McpRequest, arguments: Mapping[str, Any]) -> NewExecution:
    """Return the new execution. Raises InvalidArguments for what the model can correct, HttpProblem for all else."""
    reference = arguments.get(REFERENCE)
    if isinstance(reference, SkillReference):
        arguments = {name: value for name, value in arguments.items() if name != REFERENCE}
    check_names(arguments, *_FIELDS)
    options = request.sender.options
    body: dict[str, Any] = {_FIELDS[name]: value for name, value in arguments.items() if value is not None}
    if isinstance(reference, SkillReference):
        body |= {"skillRef": reference.to_api()}
    elif "code" not in body:
        raise InvalidArguments("code is missing: send the Python to run")
    allowed = request.sender.allowed_tools
    body.setdefault("tools", _EVERY_TOOL if allowed is None else allowed)
    _check_tools(body["tools"], options.tools)
    body |= {"poolRef": {"name": options.pool}, "limits": {"outputBytes": choose_output_bytes(options.max_tokens)}}
    chosen = {"user": options.user, "conversation": options.conversation, "useCase": options.use_case}
    body |= {name: value for name, value in chosen.items() if value is not None}
    try:
        return parse_spec(NewExecution, json.dumps(body).encode(), request.memory)
    except HttpProblem as problem:
        raise explain_problem(problem) from None


def _check_tools(patterns: Any, allowed: Sequence[str] | None) -> None:
    """Raise InvalidArguments for a pattern beyond the tools of the URL."""
    for pattern in patterns if isinstance(patterns, list) and allowed is not None else ():
        if isinstance(pattern, str) and not is_within(pattern, allowed or ()):
            raise InvalidArguments(f"tools: {pattern[:100]} is not within {', '.join(allowed or ())}")


def explain_problem(problem: HttpProblem) -> Exception:
    """Return InvalidArguments if all of a problem's fields are arguments, or else the problem."""
    fields = {error.field.partition(".")[0] for error in problem.errors}
    if problem.status not in (400, 403, 413, 422) or not fields or not fields <= _NAMES.keys():
        return problem
    errors = []
    for error in problem.errors:
        field, separator, rest = error.field.partition(".")
        errors.append(f"{_NAMES[field]}{separator}{rest}: {error.message}")
    return InvalidArguments("; ".join(errors))
