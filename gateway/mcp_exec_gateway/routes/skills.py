"""Routes of skills: save, list, list versions, get, approve, deprecate, export, delete."""

import asyncio
from typing import Annotated, Final

from fastapi import APIRouter, Path, Query, Request, Security
from fastapi.security import HTTPAuthorizationCredentials
from starlette.responses import Response

from mcp_exec_api.skill import ReviewDecision
from mcp_exec_api.wire.skills import NewApproval, NewDeprecation, NewSkill
from mcp_exec_gateway.auth.callers import BEARER
from mcp_exec_gateway.dependencies import CreateCaller, GetCaller, Injected, ListCaller, SkillApproveCaller
from mcp_exec_gateway.http.json import json_response
from mcp_exec_gateway.http.problems import HttpProblem
from mcp_exec_gateway.http.query_params import NamespaceQuery, SkillQuery, SkillsQuery
from mcp_exec_gateway.http.request_body import parse_model, read_body
from mcp_exec_gateway.openapi import skills as openapi
from mcp_exec_gateway.skills.cache import build_view

router = APIRouter(prefix="/v1/skills", tags=["skills"])

MAX_VERSIONS: Final = 1000
"""Versions of a skill that are listed, the newest."""
_MAX_BODY_BYTES: Final = 2 * 1024 * 1024
_MAX_REVIEW_BYTES: Final = 16 * 1024
Name = Annotated[str, Path(description="Name of the skill.")]
Version = Annotated[int, Path(description="Version of the skill.", ge=1, le=99_999)]
Credentials = Annotated[HTTPAuthorizationCredentials, Security(BEARER)]


@router.post("", **openapi.SAVE_SKILL)
async def save_skill(
    request: Request, dependencies: Injected, caller: CreateCaller, query: Annotated[NamespaceQuery, Query()]
) -> Response:
    """Save a skill as a draft."""
    with dependencies.memory.reserving(caller.namespace) as memory:
        new = parse_model(NewSkill, await read_body(request, limit=_MAX_BODY_BYTES, memory=memory))
        skill = await dependencies.skills.save(new, caller=caller)
    return json_response(build_view(skill), status=201)


@router.get("", **openapi.LIST_SKILLS)
async def list_skills(
    dependencies: Injected, caller: ListCaller, credentials: Credentials, query: Annotated[SkillsQuery, Query()]
) -> Response:
    """List versions of skills."""
    if query.as_approver:
        await dependencies.callers.authorize(caller, credentials, "approve-skills")
    skills = dependencies.skills.list_visible(caller, drafts_of_all=query.as_approver)
    if query.query:
        skills = await asyncio.to_thread(dependencies.skills.cache.search, skills, query.query)
    if query.name is not None:
        skills = [skill for skill in skills if skill["spec"]["name"] == query.name]
    if query.state is not None:
        skills = [skill for skill in skills if skill["status"]["state"] == query.state]
    return json_response({"items": [build_view(skill) for skill in skills[: query.limit]]})


@router.get("/{name}/versions", **openapi.LIST_VERSIONS)
async def list_skill_versions(
    dependencies: Injected,
    caller: ListCaller,
    credentials: Credentials,
    name: Name,
    query: Annotated[SkillQuery, Query()],
) -> Response:
    """List the versions of a skill."""
    if query.as_approver:
        await dependencies.callers.authorize(caller, credentials, "approve-skills")
    skills = dependencies.skills.list_versions(name, caller=caller, drafts_of_all=query.as_approver)
    return json_response({"items": [build_view(skill) for skill in skills[:MAX_VERSIONS]]})


@router.get("/{name}/versions/{version}", **openapi.GET_SKILL)
async def get_skill(
    dependencies: Injected,
    caller: GetCaller,
    credentials: Credentials,
    name: Name,
    version: Version,
    query: Annotated[SkillQuery, Query()],
) -> Response:
    """Get a version with its code."""
    if query.as_approver:
        await dependencies.callers.authorize(caller, credentials, "approve-skills")
    skill = await dependencies.skills.find(name, version, caller=caller, drafts_of_all=query.as_approver)
    return json_response(build_view(skill))


@router.get("/{name}/versions/{version}/archive", **openapi.EXPORT_SKILL)
async def export_skill(
    dependencies: Injected, caller: GetCaller, name: Name, version: Version, query: Annotated[NamespaceQuery, Query()]
) -> Response:
    """Get the folder of a version as a tar archive."""
    skill = await dependencies.skills.find(name, version, caller=caller)
    disposition = f'attachment; filename="{skill["metadata"]["name"]}.tar"'
    headers = {"Content-Disposition": disposition}
    return Response(dependencies.skills.export(skill), headers=headers, media_type="application/x-tar")


@router.post("/{name}/versions/{version}/approve", **openapi.APPROVE_SKILL)
async def approve_skill(
    request: Request,
    dependencies: Injected,
    caller: SkillApproveCaller,
    name: Name,
    version: Version,
    query: Annotated[NamespaceQuery, Query()],
) -> Response:
    """Approve a version: all executions of the namespace can use it."""
    new = parse_model(NewApproval, await read_body(request, limit=_MAX_REVIEW_BYTES))
    skill = await dependencies.skills.review(name, version, ReviewDecision.APPROVE, new, caller=caller)
    return json_response(build_view(skill))


@router.post("/{name}/versions/{version}/deprecate", **openapi.DEPRECATE_SKILL)
async def deprecate_skill(
    request: Request,
    dependencies: Injected,
    caller: SkillApproveCaller,
    name: Name,
    version: Version,
    query: Annotated[NamespaceQuery, Query()],
) -> Response:
    """Deprecate a version: only executions that name it can use it."""
    new = parse_model(NewDeprecation, await read_body(request, limit=_MAX_REVIEW_BYTES))
    skill = await dependencies.skills.review(name, version, ReviewDecision.DEPRECATE, new, caller=caller)
    return json_response(build_view(skill))


@router.delete("/{name}/versions/{version}", **openapi.DELETE_SKILL)
async def delete_skill(
    dependencies: Injected,
    caller: CreateCaller,
    credentials: Credentials,
    name: Name,
    version: Version,
    query: Annotated[NamespaceQuery, Query()],
) -> Response:
    """Delete a version: an own draft, or as an approver any."""
    service = dependencies.skills
    skill = await service.find(name, version, caller=caller, drafts_of_all=True)
    if not service.is_own_draft(skill, caller):
        try:
            await dependencies.callers.authorize(caller, credentials, "approve-skills")
        except HttpProblem:
            await service.find(name, version, caller=caller)  # a 404 for a draft of another caller
            raise
    await service.delete(skill)
    return Response(status_code=204)
