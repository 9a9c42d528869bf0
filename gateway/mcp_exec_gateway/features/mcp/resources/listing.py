"""The resources that a client can list: approved skills, and the files of the caller's workspaces.

A page has the skills, or files of one workspace. Artifacts are listed by the results of their executions, and tools by
`search_tools`.
"""

import mimetypes
from collections.abc import Iterator
from typing import Final

from mcp import MCPError
from mcp_types import INVALID_PARAMS, ListResourcesResult, Resource

from mcp_exec_api.wire.workspaces import WorkspaceFileList, WorkspaceList
from mcp_exec_common.skills.folder import FILE_TYPES, SKILL_FILE
from mcp_exec_gateway.core.auth.callers import find_owner
from mcp_exec_gateway.core.http.json import replace_surrogates
from mcp_exec_gateway.core.http.problems import HttpProblem
from mcp_exec_gateway.features.files.service import Files
from mcp_exec_gateway.features.mcp.request import Sender
from mcp_exec_gateway.features.mcp.resources.addresses import Address
from mcp_exec_gateway.features.mcp.resources.skills import list_newest_skills

_PAGE: Final = 200
_MAX_CURSOR: Final = 2048


async def list_resources(sender: Sender, cursor: str | None) -> ListResourcesResult:
    """Return a page. The cursor is `WORKSPACE/LASTPATH`. Raises MCPError and HttpProblem."""
    names = await list_workspaces(sender)
    if cursor is None:
        return ListResourcesResult(resources=list(_list_skills(sender)), next_cursor=f"{names[0]}/" if names else None)
    workspace, separator, after = cursor[:_MAX_CURSOR].partition("/")
    if not separator or not workspace or len(cursor) > _MAX_CURSOR:
        raise MCPError(INVALID_PARAMS, "the cursor is not one that resources/list has returned")
    page = await list_files(sender, workspace, after=after)
    if page is not None and page.next:
        following: str | None = f"{workspace}/{page.next}"
    else:
        following = next((f"{name}/" for name in names if name > workspace), None)
    files = [_describe_file(workspace, file.path, file.size) for file in page.items] if page else []
    return ListResourcesResult(resources=files, next_cursor=following)


async def list_workspaces(sender: Sender) -> list[str]:
    """Return the names of the caller's workspaces; none in an installation without files. Raises HttpProblem."""
    files = sender.dependencies.find(Files)
    if files is None or files.forwarder.client is None:
        return []
    owner = find_owner(sender.caller, sender.options.user)
    try:
        found = await files.forwarder.ask(WorkspaceList, "GET", "workspaces", owner=owner)
    except HttpProblem as problem:
        if problem.status == 404:  # the broker stores no files
            return []
        raise
    return sorted(workspace.name for workspace in found.items)


async def list_files(
    sender: Sender, workspace: str, *, prefix: str = "", after: str = "", limit: int = _PAGE
) -> WorkspaceFileList | None:
    """Return a page of a workspace's files, or None if there is no such workspace. Raises HttpProblem."""
    owner = find_owner(sender.caller, sender.options.user)
    params = {"prefix": prefix, "limit": str(limit)} | ({"after": after} if after else {})
    try:
        return await sender.dependencies.get(Files).forwarder.ask(
            WorkspaceFileList, "GET", "workspaces", workspace, "files", owner=owner, params=params
        )
    except HttpProblem as problem:
        if problem.status in (404, 422):
            return None
        raise


def _list_skills(sender: Sender) -> Iterator[Resource]:
    for skill in list_newest_skills(sender):
        name, (_, size) = skill["spec"]["name"], skill["files"][SKILL_FILE]
        yield Resource(
            uri=str(Address(scheme="skill", name=name, path=SKILL_FILE)),
            name=name,
            description=skill["spec"]["description"],
            mime_type=FILE_TYPES[SKILL_FILE],
            size=size,
        )


def _describe_file(workspace: str, path: str, size: int) -> Resource:
    shown = str(replace_surrogates(path))
    return Resource(
        uri=str(Address(scheme="workspace", name=workspace, path=shown)),
        name=shown,
        mime_type=mimetypes.guess_type(shown)[0],
        size=size,
    )
