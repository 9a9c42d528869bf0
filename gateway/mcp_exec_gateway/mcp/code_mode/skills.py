"""`run_skill` and `save_skill`: their arguments, and the draft that is saved."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mcp_types import CallToolResult, TextContent
from pydantic import ValidationError

from mcp_exec_api.meta import field_errors
from mcp_exec_api.wire.skills import NewSkill
from mcp_exec_gateway.http.problems import HttpProblem
from mcp_exec_gateway.mcp.code_mode.discovery import InvalidArguments, check_names
from mcp_exec_gateway.mcp.request import Sender
from mcp_exec_gateway.skills.views import build_view

REFERENCE: Final = "skill"
"""Argument of `run_code` by which `run_skill` passes the skill. A client cannot send an object of this class."""
_SHOWN: Final = ("name", "version", "state", "import", "parameters", "codeFindings")


@dataclass(frozen=True, kw_only=True)
class SkillReference:
    """The skill to run."""

    name: Any
    version: Any

    def to_api(self) -> dict[str, Any]:
        """Return the field `skillRef` of a spec."""
        return {"name": self.name, **({} if self.version is None else {"version": self.version})}


def read_reference(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `run_code` that run a skill. Raises InvalidArguments."""
    check_names(arguments, "name", "version", "arguments", "timeout")
    if not isinstance(name := arguments.get("name"), str):
        raise InvalidArguments("name is missing: send the name of a skill; search_tools finds skills")
    given = arguments.get("arguments") or {}
    if not isinstance(given, Mapping):
        raise InvalidArguments("arguments must be an object: the arguments of the skill by their names")
    reference = SkillReference(name=name.replace("_", "-"), version=arguments.get("version"))
    return {REFERENCE: reference, "context": dict(given), "timeout": arguments.get("timeout")}


async def save_skill(sender: Sender, arguments: Mapping[str, Any]) -> CallToolResult:
    """Save a draft of the caller. Raises InvalidArguments for what the model can correct, and HttpProblem."""
    check_names(arguments, "name", "description", "code", "execution")
    caller = await sender.authorize("create")
    fields = {"fromExecution" if name == "execution" else name: value for name, value in arguments.items()}
    try:
        new = NewSkill.model_validate({**fields, "user": sender.options.user}, strict=True)
        skill = await sender.dependencies.skills.save(new, caller=caller)
    except ValidationError as error:
        text = "; ".join(f"{each.field}: {each.message}" for each in field_errors(error, NewSkill))
        raise InvalidArguments(text) from None
    except HttpProblem as problem:
        if problem.status in (403, 404, 422):
            raise InvalidArguments(problem.detail.replace("fromExecution", "execution")) from None
        raise
    view = build_view(skill)
    text = f"saved {view['name']} version {view['version']} as a draft; {view['import']}"
    return CallToolResult(
        content=[TextContent(text=text)],
        structured_content={name: view[name] for name in _SHOWN if name in view},
    )
