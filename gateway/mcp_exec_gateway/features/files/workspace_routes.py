"""Routes of workspaces: settings, files, archives, versions. Callers see only their own."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final

from fastapi import Depends, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from mcp_exec_api.files import WorkspaceName
from mcp_exec_api.wire.workspaces import (
    CommitResult,
    RestoreRequest,
    Workspace,
    WorkspaceFileList,
    WorkspaceList,
    WorkspaceSettings,
    WorkspaceVersionList,
)
from mcp_exec_gateway.core.auth.callers import Caller, find_owner
from mcp_exec_gateway.core.dependencies import CreateCaller, Dependencies, GetCaller, Injected, ListCaller
from mcp_exec_gateway.core.http.parameters import OwnerQuery
from mcp_exec_gateway.core.http.request_body import parse_model, read_body
from mcp_exec_gateway.core.openapi import (
    TAR,
    UNCHANGED,
    accepts,
    accepts_bytes,
    build_router,
    describe_bytes,
    problems,
)
from mcp_exec_gateway.features.files.forwarding import build_params
from mcp_exec_gateway.features.files.parameters import (
    IfMatch,
    IfNoneMatch,
    ListFilesQuery,
    PutArchiveQuery,
    PutFileQuery,
    ReadArchiveQuery,
    ReadFilesQuery,
)
from mcp_exec_gateway.features.files.response import OCTETS, TRANSFER_BYTES, ContentResponse, build_content_headers
from mcp_exec_gateway.features.files.service import Files
from mcp_exec_gateway.features.files.upload import UploadBody
from mcp_exec_gateway.features.files.workspaces import split_path

router = build_router(prefix="/v1/workspaces", tag="workspaces")

Name = Annotated[WorkspaceName, Path(description="Name of the workspace.")]

FilePath = Annotated[str, Path(description="Path of the file, relative to the workspace.")]
_MAX_BODY_BYTES: Final = 16 * 1024


async def read_condition(if_match: IfMatch = None, if_none_match: IfNoneMatch = None) -> dict[str, str]:
    """Return the headers of a write that say what must hold for it to take place."""
    given = {"If-Match": if_match, "If-None-Match": if_none_match}
    return {name: value for name, value in given.items() if value is not None}


Condition = Annotated[dict[str, str], Depends(read_condition)]


@router.get("", response_model=WorkspaceList, response_description="The workspaces")
@problems(404)
async def list_workspaces(
    dependencies: Injected, caller: ListCaller, query: Annotated[OwnerQuery, Query()]
) -> Response:
    """List workspaces.

    Returns the caller's own workspaces, of one user or of executions without a user.
    """
    return await _pass_on(dependencies, caller, query, "GET")


@router.get("/{name}", response_model=Workspace, response_description="The workspace")
@problems(404)
async def get_workspace(
    dependencies: Injected, caller: GetCaller, name: Name, query: Annotated[OwnerQuery, Query()]
) -> Response:
    """Get a workspace.

    Returns size, limits and times of a workspace.
    """
    return await _pass_on(dependencies, caller, query, "GET", name)


@router.put("/{name}", response_model=Workspace, response_description="The workspace")
@accepts(WorkspaceSettings)
async def put_workspace(
    request: Request, dependencies: Injected, caller: CreateCaller, name: Name, query: Annotated[OwnerQuery, Query()]
) -> Response:
    """Create a workspace, or replace its settings.

    Settings that are not given get the installation's defaults. An execution or a file that names a workspace which
    does not exist creates it with the defaults.
    """
    settings = parse_model(WorkspaceSettings, await read_body(request, limit=_MAX_BODY_BYTES))
    body = settings.model_dump_json(by_alias=True, exclude_unset=True).encode()
    return await _pass_on(dependencies, caller, query, "PUT", name, body=body, creates=True)


@router.delete("/{name}", status_code=204, response_description="The workspace is deleted")
@problems(404)
async def delete_workspace(
    dependencies: Injected, caller: CreateCaller, name: Name, query: Annotated[OwnerQuery, Query()]
) -> Response:
    """Delete a workspace.

    Deletes the workspace with all its versions.
    """
    answer = await _pass_on(dependencies, caller, query, "DELETE", name)
    dependencies.get(Files).workspaces.forget(find_owner(caller, query.user), name)
    return answer


@router.get("/{name}/versions", response_model=WorkspaceVersionList, response_description="The versions")
@problems(404)
async def list_versions(
    dependencies: Injected, caller: GetCaller, name: Name, query: Annotated[OwnerQuery, Query()]
) -> Response:
    """List the versions of a workspace.

    Returns the last ten versions, newest first.
    """
    return await _pass_on(dependencies, caller, query, "GET", name, "versions")


@router.post("/{name}/restore", response_model=CommitResult, response_description="The new version")
@accepts(RestoreRequest)
@problems(404, 409, 412)
async def restore_workspace(
    request: Request,
    dependencies: Injected,
    caller: CreateCaller,
    name: Name,
    query: Annotated[OwnerQuery, Query()],
    condition: Condition,
) -> Response:
    """Restore a version of a workspace.

    Commits the files of an earlier version as a new one, so that nothing is lost.
    """
    body = await read_body(request, limit=_MAX_BODY_BYTES)
    parse_model(RestoreRequest, body)
    return await _pass_on(dependencies, caller, query, "POST", name, "restore", body=body, condition=condition)


@router.get("/{name}/files", response_model=WorkspaceFileList, response_description="A page")
@problems(404)
async def list_files(
    dependencies: Injected, caller: GetCaller, name: Name, query: Annotated[ListFilesQuery, Query()]
) -> Response:
    """List the files of a workspace.

    Returns a page of the files of a version, by path, with their digests.
    """
    return await _pass_on(dependencies, caller, query, "GET", name, "files")


@router.get(
    "/{name}/files/{path:path}",
    response_class=Response,
    response_description="The file",
    responses={200: describe_bytes(OCTETS), 304: UNCHANGED},
)
@problems(404)
async def get_file(
    request: Request,
    dependencies: Injected,
    caller: GetCaller,
    name: Name,
    path: FilePath,
    query: Annotated[ReadFilesQuery, Query()],
) -> Response:
    """Get a file of a workspace.

    Returns the bytes of a file, always as a download. Its ETag is the digest of the bytes.
    """
    headers = build_content_headers(name=path, media_type="", shows=False)
    return _send_content(request, dependencies, caller, query, name, "files", *split_path(path), headers=headers)


@router.put("/{name}/files/{path:path}", response_model=CommitResult, response_description="The new version")
@accepts_bytes(OCTETS)
@problems((409, "The same file was changed at the same time"), 412)
async def put_file(
    request: Request,
    dependencies: Injected,
    caller: CreateCaller,
    name: Name,
    path: FilePath,
    query: Annotated[PutFileQuery, Query()],
    condition: Condition,
) -> Response:
    """Write a file of a workspace.

    Writes one file and commits a version; creates the workspace if it does not exist. The body is the file's bytes.
    """
    with _receiving(request, dependencies, caller, limit=dependencies.settings.max_upload_bytes) as body:
        target = name, "files", *split_path(path, is_new=True)
        return await _pass_on(dependencies, caller, query, "PUT", *target, body=body, condition=condition, creates=True)


@router.delete("/{name}/files/{path:path}", response_model=CommitResult, response_description="The new version")
@problems(404, 409, 412)
async def delete_file(
    dependencies: Injected,
    caller: CreateCaller,
    name: Name,
    path: FilePath,
    query: Annotated[OwnerQuery, Query()],
    condition: Condition,
) -> Response:
    """Delete a file or a folder of a workspace.

    Deletes a file, or all files below a path, and commits a version.
    """
    target = name, "files", *split_path(path)
    return await _pass_on(dependencies, caller, query, "DELETE", *target, condition=condition)


@router.get(
    "/{name}/archive",
    response_class=Response,
    response_description="The archive",
    responses={200: describe_bytes(TAR), 304: UNCHANGED},
)
@problems(404)
async def get_archive(
    request: Request,
    dependencies: Injected,
    caller: GetCaller,
    name: Name,
    query: Annotated[ReadArchiveQuery, Query()],
) -> Response:
    """Get a workspace as a tar archive.

    Returns the files of a version as an uncompressed tar archive. Its ETag is that of the version.
    """
    headers = build_content_headers(name=f"{name}.tar", media_type="", shows=False) | {"Content-Type": TAR}
    return _send_content(request, dependencies, caller, query, name, "tar", headers=headers)


@router.put("/{name}/archive", response_model=CommitResult, response_description="The new version")
@accepts_bytes(TAR)
@problems(409, 412)
async def put_archive(
    request: Request,
    dependencies: Injected,
    caller: CreateCaller,
    name: Name,
    query: Annotated[PutArchiveQuery, Query()],
    condition: Condition,
) -> Response:
    """Write the files of a tar archive into a workspace.

    Writes all files of an uncompressed tar archive as one version; creates the workspace if it does not exist. Files
    that the archive does not have stay, unless `replace` is true. Links, devices and paths that leave the workspace are
    refused.
    """
    with _receiving(request, dependencies, caller, limit=dependencies.settings.max_archive_bytes) as body:
        return await _pass_on(
            dependencies, caller, query, "PUT", name, "tar", body=body, condition=condition, creates=True
        )


@router.post("/{name}/changes", response_model=CommitResult, response_description="The new version")
@accepts_bytes(OCTETS)
@problems(409, 412)
async def change_files(
    request: Request,
    dependencies: Injected,
    caller: CreateCaller,
    name: Name,
    query: Annotated[OwnerQuery, Query()],
    condition: Condition,
) -> Response:
    """Write and delete files of a workspace as one version.

    The body is a line of JSON with `delete`, a list of paths of files or folders, then an uncompressed tar archive of
    the files to write. All of it is one version, or nothing is changed. Paths to delete that do not exist are ignored.
    """
    with _receiving(request, dependencies, caller, limit=dependencies.settings.max_archive_bytes) as body:
        return await _pass_on(
            dependencies, caller, query, "POST", name, "changes", body=body, condition=condition, creates=True
        )


async def _pass_on(
    dependencies: Dependencies,
    caller: Caller,
    query: OwnerQuery,
    method: str,
    *path: str,
    body: bytes | UploadBody | None = None,
    condition: dict[str, str] | None = None,
    creates: bool = False,
) -> Response:
    """Return the broker's answer to a request on the caller's workspaces. One that `creates` must be within its quota.

    `path` is what follows `/v1/workspaces`.
    """
    owner, params = find_owner(caller, query.user), build_params(query)
    if creates:
        params |= await dependencies.get(Files).workspaces.admit(owner, path[0], caller=caller)
    return await dependencies.get(Files).forwarder.pass_on(
        method,
        "workspaces",
        *path,
        owner=owner,
        memory=dependencies.memory,
        params=params,
        body=body,
        headers=condition,
    )


def _send_content(
    request: Request, dependencies: Dependencies, caller: Caller, query: OwnerQuery, *path: str, headers: dict[str, str]
) -> Response:
    """Return the bytes that the broker has at a path below `/v1/workspaces`."""
    owner, params = find_owner(caller, query.user), build_params(query)
    return ContentResponse(
        dependencies.get(Files).forwarder.open_content("workspaces", *path, owner=owner, params=params),
        headers=headers,
        slot=dependencies.get(Files).transfer_slots.hold(caller.name),
        memory=dependencies.memory,
        namespace=caller.namespace,
        if_none_match=request.headers.get("if-none-match", ""),
    )


@contextmanager
def _receiving(request: Request, dependencies: Dependencies, caller: Caller, *, limit: int) -> Iterator[UploadBody]:
    """Yield the body, and hold a slot and the memory of a transfer. Raises HttpProblem: 413, 415, 429, 503."""
    with (
        dependencies.get(Files).transfer_slots.hold(caller.name),
        dependencies.memory.reserving(caller.namespace) as memory,
    ):
        memory.require(TRANSFER_BYTES)
        yield UploadBody.of_request(request, limit=limit)
