"""Examples of workspaces and artifacts in the OpenAPI document."""

from typing import Any, Final

from mcp_exec_gateway.core.openapi import Examples, show

_DIGEST: Final = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
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
_COMMIT: Final[dict[str, Any]] = {
    "version": 8,
    "base": 7,
    "changedFiles": 1,
    "files": 12,
    "bytes": 48290,
    "etag": "0c7f5d0c3f0a4f6c8a3f5b1e2d4c6a80-8",
    "merged": False,
}
_FILE: Final[dict[str, Any]] = {"path": "data/sales.csv", "size": 5120, "sha256": _DIGEST, "mode": 420}
_VERSION: Final[dict[str, Any]] = {
    "version": 7,
    "createdAt": "2026-11-21T20:00:00.000000Z",
    "files": 12,
    "bytes": 48213,
    "changedFiles": 2,
    "execution": "4b1d6f6e-8f0e-4b3c-9a53-0f6c6a2f1e11",
}
_ARTIFACT: Final[dict[str, Any]] = {
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
EXAMPLES: Final[Examples] = {
    "WorkspaceSettings": show(sales={"description": "Sales", "ttlSeconds": 604800}),
    "Workspace": show(one=_WORKSPACE),
    "WorkspaceList": show(
        one={"items": [_WORKSPACE], "storedBytes": 90112, "maxStoredBytes": 10737418240, "maxWorkspaces": 100}
    ),
    "WorkspaceFileList": show(page={"version": 7, "etag": _WORKSPACE["etag"], "items": [_FILE]}),
    "WorkspaceVersionList": show(one={"items": [_VERSION]}),
    "RestoreRequest": show(earlier={"version": 5}),
    "CommitResult": show(one=_COMMIT),
    "ArtifactList": show(one={"items": [_ARTIFACT]}),
}
