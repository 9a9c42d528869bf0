"""The OpenAPI document of workspaces and artifacts."""

from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode

from mcp_exec_api.wire.executions import ArtifactList
from mcp_exec_api.wire.workspaces import (
    CommitResult,
    RestoreRequest,
    Workspace,
    WorkspaceFileList,
    WorkspaceList,
    WorkspaceSettings,
    WorkspaceVersionList,
)
from mcp_exec_gateway.files.response import OCTETS
from mcp_exec_gateway.openapi.parts import JSON, REF, describe_problem, describe_problems, describe_response

_DIGEST: Final = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_TAR: Final = "application/x-tar"
_BYTES: Final = {"schema": {"type": "string", "format": "binary"}}
_WORKSPACE: Final[dict[str, Any]] = {
    "name": "sales",
    "id": "0c7f5d0c3f0a4f6c8a3f5b1e2d4c6a80",
    "description": "Sales by region",
    "version": 7,
    "etag": "0c7f5d0c3f0a4f6c8a3f5b1e2d4c6a80-7",
    "files": 12,
    "bytes": 48213,
    "maxBytes": 1073741824,
    "maxFiles": 10000,
    "ttlSeconds": 2592000,
    "createdAt": "2026-11-20T20:00:00.000000Z",
    "usedAt": "2026-11-21T20:00:00.000000Z",
    "expiresAt": "2026-12-21T20:00:00.000000Z",
}
_COMMIT: Final = {
    "version": 8,
    "base": 7,
    "changedFiles": 1,
    "files": 12,
    "bytes": 48290,
    "etag": "0c7f5d0c3f0a4f6c8a3f5b1e2d4c6a80-8",
    "merged": False,
}
_FILE: Final = {"path": "data/sales.csv", "size": 5120, "sha256": _DIGEST, "mode": 420}
_VERSION: Final = {
    "version": 7,
    "createdAt": "2026-11-21T20:00:00.000000Z",
    "files": 12,
    "bytes": 48213,
    "changedFiles": 2,
    "execution": "4b1d6f6e-8f0e-4b3c-9a53-0f6c6a2f1e11",
}
_ARTIFACT: Final = {
    "id": "5d1c0a8e44f1b2c3",
    "name": "sales.png",
    "mediaType": "image/png",
    "bytes": 18231,
    "sha256": _DIGEST,
    "title": "Sales by region",
    "url": "https://gateway.example.com/v1/artifacts/agents/exec-01k9x3v5t8q2/5d1c0a8e44f1b2c3?uid=4b1d6f6e-8f0e-4b3c-"
    "9a53-0f6c6a2f1e11&expires=1795291200&signature=2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
    "expiresAt": "2026-11-21T20:15:00.000000Z",
}
_SHOWN: Final = (
    "A browser shows images, text, JSON, HTML and SVG, the last two without scripts and without a network. Everything "
    "else is a download."
)


_SLOW: Final = (
    "A body may arrive slowly: at 64 KiB a second in the mean, without a pause of 40 seconds, and in 25 minutes in all."
)
_CONDITIONS: Final[list[dict[str, Any]]] = [
    {
        "name": "If-Match",
        "in": "header",
        "schema": {"type": "string", "maxLength": 2000},
        "description": "ETags in quotation marks: the write takes place only if one is that of the workspace's newest "
        "version, or of the file that is written or deleted. `*`: only if it exists.",
    },
    {
        "name": "If-None-Match",
        "in": "header",
        "schema": {"type": "string", "enum": ["*"]},
        "description": "The write takes place only if the file, or of an archive the workspace, does not exist.",
    },
]


def _describe_json_body(schema: str, example: dict[str, Any]) -> dict[str, Any]:
    content = {JSON: {"schema": {"$ref": REF + schema}, "example": example}}
    return {"requestBody": {"required": True, "content": content}}


def _describe_bytes(media_type: str = OCTETS) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {media_type: _BYTES}}, "parameters": _CONDITIONS}


def _describe_content(description: str, *media_types: str) -> dict[str, Any]:
    return {"description": description, "content": dict.fromkeys(media_types or (OCTETS,), _BYTES)}


_UNCHANGED: Final = {304: {"description": "The content is that of `If-None-Match`"}}

LIST_WORKSPACES: Final[dict[str, Any]] = {
    "summary": "List workspaces",
    "description": "Returns the caller's own workspaces, of one user or of executions without a user.",
    "response_model": None,
    "responses": {
        200: describe_response(
            "The workspaces",
            "WorkspaceList",
            one={"items": [_WORKSPACE], "storedBytes": 90112, "maxStoredBytes": 10737418240, "maxWorkspaces": 100},
        ),
        **describe_problems(404),
    },
}
"""`GET /v1/workspaces`."""

GET_WORKSPACE: Final[dict[str, Any]] = {
    "summary": "Get a workspace",
    "description": "Returns size, limits and times of a workspace.",
    "response_model": None,
    "responses": {200: describe_response("The workspace", "Workspace", one=_WORKSPACE), **describe_problems(404)},
}
"""`GET /v1/workspaces/{name}`."""

PUT_WORKSPACE: Final[dict[str, Any]] = {
    "summary": "Create a workspace, or replace its settings",
    "description": (
        "Settings that are not given get the installation's defaults. An execution or a file that names a workspace "
        "which does not exist creates it with the defaults."
    ),
    "response_model": None,
    "openapi_extra": _describe_json_body("WorkspaceSettings", {"description": "Sales", "ttlSeconds": 604800}),
    "responses": {
        200: describe_response("The workspace", "Workspace", one=_WORKSPACE),
        **describe_problems(400, 408, 413, 415, 429),
    },
}
"""`PUT /v1/workspaces/{name}`."""

DELETE_WORKSPACE: Final[dict[str, Any]] = {
    "summary": "Delete a workspace",
    "description": "Deletes the workspace with all its versions.",
    "response_model": None,
    "status_code": 204,
    "responses": {204: {"description": "The workspace is deleted"}, **describe_problems(404)},
}
"""`DELETE /v1/workspaces/{name}`."""

LIST_VERSIONS: Final[dict[str, Any]] = {
    "summary": "List the versions of a workspace",
    "description": "Returns the last ten versions, newest first.",
    "response_model": None,
    "responses": {
        200: describe_response("The versions", "WorkspaceVersionList", one={"items": [_VERSION]}),
        **describe_problems(404),
    },
}
"""`GET /v1/workspaces/{name}/versions`."""

RESTORE: Final[dict[str, Any]] = {
    "summary": "Restore a version of a workspace",
    "description": "Commits the files of an earlier version as a new one, so that nothing is lost.",
    "response_model": None,
    "openapi_extra": {**_describe_json_body("RestoreRequest", {"version": 5}), "parameters": _CONDITIONS},
    "responses": {
        200: describe_response("The new version", "CommitResult", one=_COMMIT),
        **describe_problems(400, 404, 408, 409, 412, 413, 415, 429),
    },
}
"""`POST /v1/workspaces/{name}/restore`."""

LIST_FILES: Final[dict[str, Any]] = {
    "summary": "List the files of a workspace",
    "description": "Returns a page of the files of a version, by path, with their digests.",
    "response_model": None,
    "responses": {
        200: describe_response(
            "A page", "WorkspaceFileList", page={"version": 7, "etag": _WORKSPACE["etag"], "items": [_FILE]}
        ),
        **describe_problems(404),
    },
}
"""`GET /v1/workspaces/{name}/files`."""

GET_FILE: Final[dict[str, Any]] = {
    "summary": "Get a file of a workspace",
    "description": "Returns the bytes of a file, always as a download. Its ETag is the digest of the bytes.",
    "response_model": None,
    "responses": {200: _describe_content("The file"), **_UNCHANGED, **describe_problems(404, 429)},
}
"""`GET /v1/workspaces/{name}/files/{path}`."""

PUT_FILE: Final[dict[str, Any]] = {
    "summary": "Write a file of a workspace",
    "description": (
        "Writes one file and commits a version; creates the workspace if it does not exist. The body is the file's "
        f"bytes. {_SLOW}"
    ),
    "response_model": None,
    "openapi_extra": _describe_bytes(),
    "responses": {
        200: describe_response("The new version", "CommitResult", one=_COMMIT),
        409: {**describe_problem(409), "description": "The same file was changed at the same time"},
        **describe_problems(408, 412, 413, 415, 429),
    },
}
"""`PUT /v1/workspaces/{name}/files/{path}`."""

DELETE_FILE: Final[dict[str, Any]] = {
    "summary": "Delete a file or a folder of a workspace",
    "description": "Deletes a file, or all files below a path, and commits a version.",
    "response_model": None,
    "openapi_extra": {"parameters": _CONDITIONS},
    "responses": {
        200: describe_response("The new version", "CommitResult", one=_COMMIT),
        **describe_problems(404, 409, 412, 429),
    },
}
"""`DELETE /v1/workspaces/{name}/files/{path}`."""

GET_ARCHIVE: Final[dict[str, Any]] = {
    "summary": "Get a workspace as a tar archive",
    "description": "Returns the files of a version as an uncompressed tar archive. Its ETag is that of the version.",
    "response_model": None,
    "responses": {200: _describe_content("The archive", _TAR), **_UNCHANGED, **describe_problems(404, 429)},
}
"""`GET /v1/workspaces/{name}/archive`."""

PUT_ARCHIVE: Final[dict[str, Any]] = {
    "summary": "Write the files of a tar archive into a workspace",
    "description": (
        "Writes all files of an uncompressed tar archive as one version; creates the workspace if it does not exist. "
        "Files that the archive does not have stay, unless `replace` is true. Links, devices and paths that leave the "
        f"workspace are refused. {_SLOW}"
    ),
    "response_model": None,
    "openapi_extra": _describe_bytes(_TAR),
    "responses": {
        200: describe_response("The new version", "CommitResult", one=_COMMIT),
        **describe_problems(408, 409, 412, 413, 415, 429),
    },
}
"""`PUT /v1/workspaces/{name}/archive`."""

CHANGE_FILES: Final[dict[str, Any]] = {
    "summary": "Write and delete files of a workspace as one version",
    "description": (
        "The body is a line of JSON with `delete`, a list of paths of files or folders, then an uncompressed tar "
        "archive of the files to write. All of it is one version, or nothing is changed. Paths to delete that do not "
        f"exist are ignored. {_SLOW}"
    ),
    "response_model": None,
    "openapi_extra": _describe_bytes(),
    "responses": {
        200: describe_response("The new version", "CommitResult", one=_COMMIT),
        **describe_problems(408, 409, 412, 413, 415, 429),
    },
}
"""`POST /v1/workspaces/{name}/changes`."""

LIST_ARTIFACTS: Final[dict[str, Any]] = {
    "summary": "List an execution's artifacts",
    "description": "Returns the artifacts in their order, each with a link that needs no key until it expires.",
    "response_model": None,
    "responses": {
        200: describe_response("The artifacts", "ArtifactList", one={"items": [_ARTIFACT]}),
        **describe_problems(404),
    },
}
"""`GET /v1/executions/{name}/artifacts`."""

GET_ARTIFACT: Final[dict[str, Any]] = {
    "summary": "Get an artifact",
    "description": f"Returns the bytes of an artifact until the execution is deleted. {_SHOWN}",
    "response_model": None,
    "responses": {200: _describe_content("The artifact"), **_UNCHANGED, **describe_problems(404, 429)},
}
"""`GET /v1/executions/{name}/artifacts/{id}`."""

FOLLOW_LINK: Final[dict[str, Any]] = {
    "summary": "Get an artifact by a link",
    "description": f"Returns the bytes of an artifact by a link from the list of artifacts, without a key. {_SHOWN}",
    "response_model": None,
    "openapi_extra": {"security": []},
    "responses": {
        200: _describe_content("The artifact"),
        **_UNCHANGED,
        **describe_problems(404, 429),
        403: {**describe_problem(403), "description": "The link was changed"},
        410: {**describe_problem(410), "description": "The link has expired"},
    },
}
"""`GET /v1/artifacts/{namespace}/{name}/{id}`."""

MODELS: Final[list[tuple[type[BaseModel], JsonSchemaMode]]] = [
    (WorkspaceList, "serialization"),
    (Workspace, "serialization"),
    (WorkspaceSettings, "validation"),
    (WorkspaceFileList, "serialization"),
    (WorkspaceVersionList, "serialization"),
    (RestoreRequest, "validation"),
    (CommitResult, "serialization"),
    (ArtifactList, "serialization"),
]
"""Schemas of bodies."""
