"""Routes of workspaces: settings, files, archives, versions. A caller sees its own alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from mcp_exec_api.meta import Model
from mcp_exec_api.wire.workspaces import RestoreRequest, WorkspaceSettings
from mcp_exec_common.broker.files_client import WriteCondition
from mcp_exec_gateway.auth.callers import Caller
from mcp_exec_gateway.dependencies import CreateCaller, Dependencies, GetCaller, Injected, ListCaller
from mcp_exec_gateway.files.response import TRANSFER_BYTES, ContentResponse, build_content_headers
from mcp_exec_gateway.files.upload import UploadBody
from mcp_exec_gateway.http.json import json_response
from mcp_exec_gateway.http.query_params import (
    ListFilesQuery,
    OwnerQuery,
    PutArchiveQuery,
    PutFileQuery,
    ReadArchiveQuery,
    ReadFilesQuery,
)
from mcp_exec_gateway.http.request_body import parse_model, read_body
from mcp_exec_gateway.openapi import files as openapi
from mcp_exec_gateway.sessions import find_owner

router = APIRouter(prefix="/v1/workspaces", tags=["workspaces"])

Name = Annotated[str, Path(description="Name of the workspace.", pattern=r"^[a-z0-9]([-a-z0-9]{0,48}[a-z0-9])?$")]
FilePath = Annotated[str, Path(description="Path of the file, relative to the workspace.")]
_MAX_BODY_BYTES: Final = 16 * 1024
_TAR: Final = "application/x-tar"


@router.get("", **openapi.LIST_WORKSPACES)
async def list_workspaces(
    dependencies: Injected, caller: ListCaller, query: Annotated[OwnerQuery, Query()]
) -> Response:
    """List the caller's workspaces."""
    found = await dependencies.workspaces.list_own(find_owner(caller, query.user))
    return json_response(found.to_api())


@router.get("/{name}", **openapi.GET_WORKSPACE)
async def get_workspace(
    dependencies: Injected, caller: GetCaller, name: Name, query: Annotated[OwnerQuery, Query()]
) -> Response:
    """Get a workspace."""
    found = await dependencies.workspaces.get(find_owner(caller, query.user), name)
    return _answer(found, etag=found.etag)


@router.put("/{name}", **openapi.PUT_WORKSPACE)
async def put_workspace(
    request: Request, dependencies: Injected, caller: CreateCaller, name: Name, query: Annotated[OwnerQuery, Query()]
) -> Response:
    """Create a workspace or replace its settings."""
    settings = parse_model(WorkspaceSettings, await read_body(request, limit=_MAX_BODY_BYTES))
    owner = find_owner(caller, query.user)
    return json_response((await dependencies.workspaces.put(owner, name, settings, caller=caller)).to_api())


@router.delete("/{name}", **openapi.DELETE_WORKSPACE)
async def delete_workspace(
    dependencies: Injected, caller: CreateCaller, name: Name, query: Annotated[OwnerQuery, Query()]
) -> Response:
    """Delete a workspace with all its versions."""
    await dependencies.workspaces.delete(find_owner(caller, query.user), name)
    return Response(status_code=204)


@router.get("/{name}/versions", **openapi.LIST_VERSIONS)
async def list_versions(
    dependencies: Injected, caller: GetCaller, name: Name, query: Annotated[OwnerQuery, Query()]
) -> Response:
    """List the versions of a workspace."""
    return json_response((await dependencies.workspaces.list_versions(find_owner(caller, query.user), name)).to_api())


@router.post("/{name}/restore", **openapi.RESTORE)
async def restore_workspace(
    request: Request, dependencies: Injected, caller: CreateCaller, name: Name, query: Annotated[OwnerQuery, Query()]
) -> Response:
    """Commit the files of an earlier version as a new one."""
    wanted = parse_model(RestoreRequest, await read_body(request, limit=_MAX_BODY_BYTES))
    owner = find_owner(caller, query.user)
    condition = _read_condition(request)
    saved = await dependencies.workspaces.restore(owner, name, wanted.version, condition=condition)
    return _answer(saved, etag=saved.etag)


@router.get("/{name}/files", **openapi.LIST_FILES)
async def list_files(
    dependencies: Injected, caller: GetCaller, name: Name, query: Annotated[ListFilesQuery, Query()]
) -> Response:
    """List the files of a workspace."""
    page = await dependencies.workspaces.list_files(
        find_owner(caller, query.user),
        name,
        version=query.version,
        prefix=query.prefix,
        after=query.after,
        limit=query.limit,
    )
    return json_response(page.to_api(), headers=_tag(page.etag), memory=dependencies.memory, namespace=caller.namespace)


@router.get("/{name}/files/{path:path}", **openapi.GET_FILE)
async def get_file(
    request: Request,
    dependencies: Injected,
    caller: GetCaller,
    name: Name,
    path: FilePath,
    query: Annotated[ReadFilesQuery, Query()],
) -> Response:
    """Get a file of a workspace."""
    opening = dependencies.workspaces.open_file(find_owner(caller, query.user), name, path, version=query.version)
    return ContentResponse(
        opening,
        headers=build_content_headers(name=path, media_type="", shows=False),
        slots=[dependencies.transfer_slots.hold(caller.name)],
        memory=dependencies.memory,
        namespace=caller.namespace,
        if_none_match=request.headers.get("if-none-match", ""),
    )


@router.put("/{name}/files/{path:path}", **openapi.PUT_FILE)
async def put_file(
    request: Request,
    dependencies: Injected,
    caller: CreateCaller,
    name: Name,
    path: FilePath,
    query: Annotated[PutFileQuery, Query()],
) -> Response:
    """Write a file of a workspace."""
    service = dependencies.workspaces
    owner = find_owner(caller, query.user)
    with _receiving(dependencies, caller):
        body = UploadBody.of_request(request, limit=service.max_upload_bytes)
        saved = await service.put_file(
            owner, name, path, body, caller=caller, executable=query.executable, condition=_read_condition(request)
        )
    return _answer(saved)


@router.delete("/{name}/files/{path:path}", **openapi.DELETE_FILE)
async def delete_file(
    request: Request,
    dependencies: Injected,
    caller: CreateCaller,
    name: Name,
    path: FilePath,
    query: Annotated[OwnerQuery, Query()],
) -> Response:
    """Delete a file or a folder of a workspace."""
    owner = find_owner(caller, query.user)
    saved = await dependencies.workspaces.delete_files(owner, name, path, condition=_read_condition(request))
    return _answer(saved, etag=saved.etag)


@router.get("/{name}/archive", **openapi.GET_ARCHIVE)
async def get_archive(
    request: Request,
    dependencies: Injected,
    caller: GetCaller,
    name: Name,
    query: Annotated[ReadArchiveQuery, Query()],
) -> Response:
    """Get the files of a workspace as a tar archive."""
    owner = find_owner(caller, query.user)
    headers = build_content_headers(name=f"{name}.tar", media_type="", shows=False)
    return ContentResponse(
        dependencies.workspaces.open_archive(owner, name, version=query.version, prefix=query.prefix),
        headers={**headers, "Content-Type": _TAR},
        slots=[dependencies.transfer_slots.hold(caller.name)],
        memory=dependencies.memory,
        namespace=caller.namespace,
        if_none_match=request.headers.get("if-none-match", ""),
    )


@router.put("/{name}/archive", **openapi.PUT_ARCHIVE)
async def put_archive(
    request: Request,
    dependencies: Injected,
    caller: CreateCaller,
    name: Name,
    query: Annotated[PutArchiveQuery, Query()],
) -> Response:
    """Write the files of a tar archive into a workspace."""
    service = dependencies.workspaces
    owner = find_owner(caller, query.user)
    with _receiving(dependencies, caller):
        body = UploadBody.of_request(request, limit=service.max_archive_bytes)
        saved = await service.put_archive(
            owner, name, body, caller=caller, replace=query.replace, condition=_read_condition(request)
        )
    return _answer(saved, etag=saved.etag)


@router.post("/{name}/changes", **openapi.CHANGE_FILES)
async def change_files(
    request: Request,
    dependencies: Injected,
    caller: CreateCaller,
    name: Name,
    query: Annotated[OwnerQuery, Query()],
) -> Response:
    """Write and delete files of a workspace as one version."""
    service = dependencies.workspaces
    owner = find_owner(caller, query.user)
    with _receiving(dependencies, caller):
        body = UploadBody.of_request(request, limit=service.max_archive_bytes)
        saved = await service.change(owner, name, body, caller=caller, condition=_read_condition(request))
    return _answer(saved, etag=saved.etag)


def _read_condition(request: Request) -> WriteCondition:
    headers = request.headers
    return WriteCondition(if_match=headers.get("if-match"), if_none_match=headers.get("if-none-match"))


def _answer(found: Model, *, etag: str = "") -> Response:
    return json_response(found.to_api(), headers=_tag(etag))


def _tag(etag: str) -> dict[str, str]:
    return {"ETag": f'"{etag}"'} if etag else {}


@contextmanager
def _receiving(dependencies: Dependencies, caller: Caller) -> Iterator[None]:
    """Hold a slot and the memory of a transfer. Raises HttpProblem: 429, 503."""
    with dependencies.transfer_slots.hold(caller.name), dependencies.memory.reserving(caller.namespace) as memory:
        memory.require(TRANSFER_BYTES)
        yield
