"""Content of a new skill: from code, from an execution, or from a folder."""

import asyncio
import base64
import binascii
import hashlib
import re
from typing import Any, Final

from pydantic import ValidationError

from mcp_exec_api.code_execution import Phase
from mcp_exec_api.meta import field_errors, now
from mcp_exec_api.skills.skill import Provenance, SkillSource, SkillSpec
from mcp_exec_api.wire.skills import NewSkill
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.skills.folder import read_archive
from mcp_exec_common.skills.interface import InvalidSkill
from mcp_exec_common.skills.promotion import promote_code
from mcp_exec_gateway.http.problems import HttpProblem, invalid, invalid_field
from mcp_exec_tools.patterns import TOOL_PATTERN

_SOURCES: Final = ("code", "fromExecution", "archive")


def check_source(new: NewSkill) -> None:
    """Raise HttpProblem unless exactly one source of the code is given."""
    given = [name for name, value in zip(_SOURCES, (new.code, new.from_execution, new.archive), strict=True) if value]
    if len(given) != 1:
        raise invalid_field(
            "code", f"exactly one of {', '.join(_SOURCES)} is needed; given: {', '.join(given) or 'none'}"
        )


async def build_spec(new: NewSkill, execution: Object | None) -> SkillSpec:
    """Return the spec of a new skill, as version 1. Raises HttpProblem, a 422.

    Code and archives are read in a thread, because that takes longer than other requests should wait.
    """
    fields: dict[str, Any] = {"version": 1, "user": new.user, "tags": new.tags, "instructions": new.instructions}
    fields |= {"name": new.name or "", "description": new.description or "", "tools": new.tools or []}
    source, origin = SkillSource.CODE, {}
    try:
        if new.archive is not None:
            source = SkillSource.FOLDER
            fields |= await asyncio.to_thread(_read_folder, new.archive, new.name)
        elif execution is not None:
            source = SkillSource.EXECUTION
            names = sorted(execution["spec"].get("context") or {})
            fields["code"] = await asyncio.to_thread(promote_code, execution["spec"].get("code") or "", names)
            fields["tools"] = _list_called(execution) if new.tools is None else new.tools
            fields["user"] = execution["spec"].get("user")
            origin = {"execution": execution["metadata"]["name"], "execution_uid": execution["metadata"]["uid"]}
        else:
            fields["code"] = new.code
    except InvalidSkill as error:
        raise invalid_field("archive" if new.archive is not None else "fromExecution", str(error)) from None
    digest = "sha256:" + hashlib.sha256(fields["code"].encode("utf-8", "replace")).hexdigest()
    fields["instructions"] = fields["instructions"] or None  # Kubernetes 1.20 reads an empty text as null
    provenance = Provenance(source=source, code_digest=digest, at=now(), **origin)
    try:
        return SkillSpec.model_validate({**fields, "provenance": provenance})
    except ValidationError as error:
        raise invalid(*field_errors(error, SkillSpec)) from None


def check_execution(execution: Object, *, caller: str, label: str) -> None:
    """Raise HttpProblem if the execution is not the caller's own (`label`), or did not succeed."""
    name = execution["metadata"]["name"]
    if caller != label:
        raise HttpProblem("forbidden", 403, f"execution {name} is not one of the caller's own")
    phase = (execution.get("status") or {}).get("phase")
    if phase != Phase.SUCCEEDED:
        raise invalid_field("fromExecution", f"execution {name} is {phase or 'Pending'}; it must have Succeeded")
    if not execution["spec"].get("code"):
        raise invalid_field("fromExecution", f"execution {name} ran a skill and has no code of its own")


def _read_folder(archive: str, name: str | None) -> dict[str, Any]:
    try:
        data = base64.b64decode(archive, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidSkill("it is no base64") from None
    folder = read_archive(data)
    if name is not None and name != folder.name:
        raise InvalidSkill(f"SKILL.md has the name {folder.name[:60]!r}, and the request {name!r}")
    return dict(vars(folder))


def _list_called(execution: Object) -> list[str]:
    called = ((execution.get("status") or {}).get("toolCalls") or {}).get("byTool") or {}
    return sorted(tool for tool in called if re.fullmatch(TOOL_PATTERN, tool) and len(tool) <= 256)[:64]
