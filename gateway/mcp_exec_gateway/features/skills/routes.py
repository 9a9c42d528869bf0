"""Routes of skills: save, list, list versions, get, approve, deprecate, export, delete."""

from functools import partial
from typing import Annotated, Final

from fastapi import Depends, Path, Query, Request
from pydantic import Field
from starlette.responses import Response

from mcp_exec_api.skill import ReviewDecision, SkillState
from mcp_exec_api.wire.skills import NewApproval, NewDeprecation, NewSkill, Skill, SkillList
from mcp_exec_gateway.core.auth.callers import Caller
from mcp_exec_gateway.core.dependencies import CreateCaller, GetCaller, Injected, ListCaller, authorize
from mcp_exec_gateway.core.http.json import json_response
from mcp_exec_gateway.core.http.parameters import InNamespace, NamespaceQuery
from mcp_exec_gateway.core.http.problems import HttpProblem
from mcp_exec_gateway.core.http.request_body import parse_model, read_body
from mcp_exec_gateway.core.openapi import TAR, accepts, build_router, describe_bytes, problems
from mcp_exec_gateway.features.skills.cache import build_view
from mcp_exec_gateway.features.skills.service import SkillService
from mcp_exec_tools.search.index import MAX_QUERY

router = build_router(prefix="/v1/skills", tag="skills")

MAX_VERSIONS: Final = 1000
"""Versions of a skill that are listed, the newest."""
_MAX_BODY_BYTES: Final = 2 * 1024 * 1024
_MAX_REVIEW_BYTES: Final = 16 * 1024
Name = Annotated[str, Path(description="Name of the skill.")]
Version = Annotated[int, Path(description="Version of the skill.", ge=1, le=99_999)]
SkillApproveCaller = Annotated[Caller, Depends(authorize("approve-skills"))]


AsApprover = Annotated[
    bool, Field(alias="asApprover", description="Include drafts of other callers. Only approvers may send true.")
]


class SkillQuery(NamespaceQuery):
    """Parameters of getting a version of a skill."""

    as_approver: AsApprover = False


class SkillsQuery(SkillQuery):
    """Parameters of listing skills."""

    query: Annotated[
        str, Field(max_length=MAX_QUERY, description="What the skills should do; the best come first.")
    ] = ""
    name: Annotated[str | None, Field(max_length=50, description="Only versions of the skill of this name.")] = None
    state: Annotated[SkillState | None, Field(description="Only versions in this state.")] = None
    limit: Annotated[int, Field(ge=1, le=500, description="Maximum number of versions.")] = 100


@router.post("", status_code=201, response_model=Skill, response_description="The draft")
@accepts(NewSkill)
@problems(404)
async def save_skill(request: Request, dependencies: Injected, caller: CreateCaller, query: InNamespace) -> Response:
    """Save a skill.

    Saves a draft of the caller: from code, from a successful execution of its own, or from a folder. A name that exists
    gets a new version. The caller must be allowed all tools that the skill needs.
    """
    with dependencies.memory.reserving(caller.namespace) as memory:
        new = parse_model(NewSkill, await read_body(request, limit=_MAX_BODY_BYTES, memory=memory))
        skill = await dependencies.get(SkillService).save(new, caller=caller)
    return json_response(build_view(skill), status=201)


@router.get("", response_model=SkillList, response_description="The versions")
async def list_skills(dependencies: Injected, caller: ListCaller, query: Annotated[SkillsQuery, Query()]) -> Response:
    """List skills.

    Returns versions of skills without their code: all but drafts of other callers. It is a cache.
    """
    if query.as_approver:
        await dependencies.callers.authorize(caller, "approve-skills")
    skills = dependencies.get(SkillService).list_visible(caller, drafts_of_all=query.as_approver)
    if query.query:
        work = partial(dependencies.get(SkillService).cache.search, skills, query.query)
        skills = await dependencies.threads.run(caller.name, work)
    if query.name is not None:
        skills = [skill for skill in skills if skill["spec"]["name"] == query.name]
    if query.state is not None:
        skills = [skill for skill in skills if skill["status"]["state"] == query.state]
    return json_response({"items": [build_view(skill) for skill in skills[: query.limit]]})


@router.get("/{name}/versions", response_model=SkillList, response_description="The versions")
@problems(404)
async def list_skill_versions(
    dependencies: Injected,
    caller: ListCaller,
    name: Name,
    query: Annotated[SkillQuery, Query()],
) -> Response:
    """List the versions of a skill.

    Returns the versions of a skill without their code, newest first, at most 1,000: all but drafts of other callers. It
    is a cache.
    """
    if query.as_approver:
        await dependencies.callers.authorize(caller, "approve-skills")
    skills = dependencies.get(SkillService).list_versions(name, caller=caller, drafts_of_all=query.as_approver)
    return json_response({"items": [build_view(skill) for skill in skills[:MAX_VERSIONS]]})


@router.get("/{name}/versions/{version}", response_model=Skill, response_description="The version")
@problems(404)
async def get_skill(
    dependencies: Injected,
    caller: GetCaller,
    name: Name,
    version: Version,
    query: Annotated[SkillQuery, Query()],
) -> Response:
    """Get a version of a skill.

    Returns one version with its code and instructions.
    """
    if query.as_approver:
        await dependencies.callers.authorize(caller, "approve-skills")
    skill = await dependencies.get(SkillService).find(name, version, caller=caller, drafts_of_all=query.as_approver)
    return json_response(build_view(skill))


@router.get(
    "/{name}/versions/{version}/archive",
    response_class=Response,
    response_description="The archive",
    responses={200: describe_bytes(TAR)},
)
@problems(404)
async def export_skill(
    dependencies: Injected, caller: GetCaller, name: Name, version: Version, query: InNamespace
) -> Response:
    """Export a version of a skill.

    Returns the folder of a version, SKILL.md and the code, such as scripts/run.py, as a tar archive.
    """
    skill = await dependencies.get(SkillService).find(name, version, caller=caller)
    disposition = f'attachment; filename="{skill["metadata"]["name"]}.tar"'
    headers = {"Content-Disposition": disposition}
    return Response(dependencies.get(SkillService).export(skill), headers=headers, media_type=TAR)


@router.post("/{name}/versions/{version}/approve", response_model=Skill, response_description="The version")
@accepts(NewApproval)
@problems(404, (409, "The version has another content than the one that was read"))
async def approve_skill(
    request: Request,
    dependencies: Injected,
    caller: SkillApproveCaller,
    name: Name,
    version: Version,
    query: InNamespace,
) -> Response:
    """Approve a version of a skill.

    Lets all executions of the namespace use the version. Only approvers may do this, and by default not the one who
    saved it. The digest says which content they read.
    """
    new = parse_model(NewApproval, await read_body(request, limit=_MAX_REVIEW_BYTES))
    skill = await dependencies.get(SkillService).review(name, version, ReviewDecision.APPROVE, new, caller=caller)
    return json_response(build_view(skill))


@router.post("/{name}/versions/{version}/deprecate", response_model=Skill, response_description="The version")
@accepts(NewDeprecation)
@problems(404, (409, "The version has another content than the one that was read"))
async def deprecate_skill(
    request: Request,
    dependencies: Injected,
    caller: SkillApproveCaller,
    name: Name,
    version: Version,
    query: InNamespace,
) -> Response:
    """Deprecate a version of a skill.

    Lets only executions that name the version use it. Only approvers may do this.
    """
    new = parse_model(NewDeprecation, await read_body(request, limit=_MAX_REVIEW_BYTES))
    skill = await dependencies.get(SkillService).review(name, version, ReviewDecision.DEPRECATE, new, caller=caller)
    return json_response(build_view(skill))


@router.delete("/{name}/versions/{version}", status_code=204, response_description="The version is deleted")
@problems(404)
async def delete_skill(
    dependencies: Injected,
    caller: CreateCaller,
    name: Name,
    version: Version,
    query: InNamespace,
) -> Response:
    """Delete a version of a skill.

    Deletes a draft of the caller's own, or for approvers any version.
    """
    service = dependencies.get(SkillService)
    skill = await service.find(name, version, caller=caller, drafts_of_all=True)
    if not service.is_own_draft(skill, caller):
        try:
            await dependencies.callers.authorize(caller, "approve-skills")
        except HttpProblem as error:
            await service.find(name, version, caller=caller)  # a 404 for a draft of another caller
            state = skill["status"]["state"]
            error.detail = f"version {version} is {state}: authors delete only their drafts; {error.detail}"
            raise
    await service.delete(skill)
    return Response(status_code=204)
