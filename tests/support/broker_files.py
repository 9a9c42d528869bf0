"""Workspaces and artifacts of a fake broker, in memory: the routes of its control interface."""

import hashlib
import io
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from mcp_exec_broker.features.files.api.requests import refuse_service
from mcp_exec_broker.features.files.requests import FilesRefused
from mcp_exec_common.broker.files import ChangeHead, FilesReason, build_tag

Object = dict[str, Any]
TIME = "2026-11-21T20:00:00.000000Z"


@dataclass
class FakeWorkspace:
    """The versions of one workspace: the bytes of each file by path."""

    settings: Object = field(default_factory=dict)
    versions: list[dict[str, bytes]] = field(default_factory=list)

    @property
    def files(self) -> dict[str, bytes]:
        """Files of the newest version."""
        return self.versions[-1] if self.versions else {}


@dataclass
class FakeFiles:
    """Workspaces by owner and name, and artifacts by owner, uid and id."""

    check: Callable[[web.Request], None]
    """Refuses a request without a service token."""
    workspaces: dict[tuple[str, str], FakeWorkspace] = field(default_factory=dict)
    callers: dict[str, set[str]] = field(default_factory=dict)
    """Owners that have created workspaces, by their callers."""
    artifacts: dict[tuple[str, str, str], bytes] = field(default_factory=dict)
    refusal: FilesReason | None = None
    """Why every request is refused."""
    breaks_off: bool = False
    """Whether contents end before their announced size."""
    max_file_bytes: int = 1024 * 1024
    before_change: Callable[[], None] = lambda: None
    """Called before a change set is committed: what others do meanwhile."""

    def add_routes(self, app: web.Application) -> None:
        """Add the routes to the control interface."""
        add, base = app.router.add_route, "/v1/workspaces/{name}"
        add("GET", "/v1/workspaces", self._handle(self._list))
        add("GET", "/v1/workspace-count", self._handle(self._count))
        add("GET", base, self._handle(self._get))
        add("PUT", base, self._handle(self._put))
        add("DELETE", base, self._handle(self._delete))
        add("GET", base + "/files", self._handle(self._list_files))
        add("GET", base + "/files/{path:.+}", self._handle(self._get_file))
        add("PUT", base + "/files/{path:.+}", self._handle(self._put_file))
        add("DELETE", base + "/files/{path:.+}", self._handle(self._delete_file))
        add("GET", base + "/tar", self._handle(self._get_tar))
        add("PUT", base + "/tar", self._handle(self._put_tar))
        add("POST", base + "/changes", self._handle(self._change))
        add("GET", base + "/versions", self._handle(self._list_versions))
        add("POST", base + "/restore", self._handle(self._restore))
        add("GET", "/v1/artifacts/{uid}/{id}", self._handle(self._get_artifact))
        add("DELETE", "/v1/artifacts/{uid}", self._handle(self._delete_artifacts))

    def _handle(self, handler: Any) -> Any:
        async def handle(request: web.Request) -> web.StreamResponse:
            self.check(request)
            try:
                if self.refusal is not None:
                    raise _refuse(self.refusal)
                answer: web.StreamResponse = await handler(request)
            except FilesRefused as refused:
                answered = refuse_service(refused)
                headers = {name: value for name, value in answered.headers.items() if name != "content-length"}
                return web.Response(body=bytes(answered.body), status=answered.status_code, headers=headers)
            return answer

        return handle

    def _find(self, request: web.Request) -> FakeWorkspace:
        found = self.workspaces.get((request.query["owner"], request.match_info["name"]))
        if found is None:
            raise _refuse(FilesReason.NO_WORKSPACE)
        return found

    def _make(self, request: web.Request) -> FakeWorkspace:
        self.callers.setdefault(request.query["caller"], set()).add(request.query["owner"])
        return self.workspaces.setdefault((request.query["owner"], request.match_info["name"]), FakeWorkspace())

    def _check_condition(self, request: web.Request) -> None:
        """Refuse a write whose condition does not hold. Tags of files and `*` are left to the real broker."""
        found = self.workspaces.get((request.query["owner"], request.match_info["name"]))
        version = len(found.versions) if found else 0
        tags, new = request.headers.get("If-Match"), request.headers.get("If-None-Match")
        if tags not in (None, f'"{build_tag("w1", version)}"') or (new == "*" and version):
            raise _refuse(FilesReason.OUTDATED, version=version)

    def _describe(self, name: str, workspace: FakeWorkspace) -> Object:
        given = {"description": "", "maxBytes": 1000, "maxFiles": 100, "ttlSeconds": 3600} | workspace.settings
        sizes = {"files": len(workspace.files), "bytes": sum(map(len, workspace.files.values()))}
        times = {"createdAt": TIME, "usedAt": TIME, "expiresAt": TIME}
        version = len(workspace.versions)
        return {
            "name": name,
            "id": "w1",
            "version": version,
            "etag": build_tag("w1", version),
            **sizes,
            **given,
            **times,
        }

    async def _count(self, request: web.Request) -> web.Response:
        owners = self.callers.get(request.query["caller"], set())
        return web.json_response({"count": sum(owner in owners for owner, _ in self.workspaces)})

    async def _list(self, request: web.Request) -> web.Response:
        own = [(name, each) for (owner, name), each in self.workspaces.items() if owner == request.query["owner"]]
        items = [self._describe(name, each) for name, each in sorted(own, key=lambda pair: pair[0])]
        totals = {"storedBytes": 0, "maxStoredBytes": 10, "maxWorkspaces": 10}
        return web.json_response({"items": items, **totals})

    async def _get(self, request: web.Request) -> web.Response:
        found = self._describe(request.match_info["name"], self._find(request))
        return web.json_response(found, headers={"ETag": f'"{found["etag"]}"'})

    async def _put(self, request: web.Request) -> web.Response:
        workspace = self._make(request)
        workspace.settings = await request.json()
        return web.json_response(self._describe(request.match_info["name"], workspace))

    async def _delete(self, request: web.Request) -> web.Response:
        self._find(request)
        del self.workspaces[request.query["owner"], request.match_info["name"]]
        return web.Response(status=204)

    def _read_version(self, request: web.Request) -> dict[str, bytes]:
        workspace = self._find(request)
        version = int(request.query.get("version", len(workspace.versions)))
        if version > len(workspace.versions):
            raise _refuse(FilesReason.NO_VERSION)
        return workspace.versions[version - 1] if version else {}

    async def _list_files(self, request: web.Request) -> web.Response:
        files = self._read_version(request)
        prefix, after = request.query.get("prefix", ""), request.query.get("after", "")
        limit = int(request.query.get("limit", 1000))
        paths = sorted(path for path in files if path.startswith(prefix) and path > after)
        items = [
            {"path": path, "size": len(files[path]), "sha256": hashlib.sha256(files[path]).hexdigest(), "mode": 420}
            for path in paths[:limit]
        ]
        version = int(request.query.get("version", len(self._find(request).versions)))
        page: Object = {"version": version, "etag": build_tag("w1", version), "items": items}
        page |= {"next": paths[limit - 1]} if len(paths) > limit else {}
        return web.json_response(page, headers={"ETag": f'"{page["etag"]}"'})

    async def _get_file(self, request: web.Request) -> web.StreamResponse:
        files = self._read_version(request)
        if request.match_info["path"] not in files:
            raise _refuse(FilesReason.NO_FILE)
        return await self._send(request, files[request.match_info["path"]])

    async def _put_file(self, request: web.Request) -> web.Response:
        self._check_condition(request)
        content = bytearray()
        async for part in request.content.iter_any():
            content += part
            if len(content) > self.max_file_bytes:
                raise _refuse(FilesReason.TOO_LARGE)
        return self._commit(self._make(request), {request.match_info["path"]: bytes(content)}, tags=False)

    async def _delete_file(self, request: web.Request) -> web.Response:
        self._check_condition(request)
        workspace, path = self._find(request), request.match_info["path"]
        kept = {
            name: each for name, each in workspace.files.items() if name != path and not name.startswith(path + "/")
        }
        if len(kept) == len(workspace.files):
            raise _refuse(FilesReason.NO_FILE)
        return self._commit(workspace, kept, replace=True)

    async def _get_tar(self, request: web.Request) -> web.StreamResponse:
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for path, content in sorted(self._read_version(request).items()):
                entry = tarfile.TarInfo(path)
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
        return await self._send(request, archive.getvalue(), digest=False)

    async def _put_tar(self, request: web.Request) -> web.Response:
        self._check_condition(request)
        files = _read_tar(await request.read())
        return self._commit(self._make(request), files, replace=request.query.get("replace") == "true")

    async def _change(self, request: web.Request) -> web.Response:
        line, _, archive = (await request.read()).partition(b"\n")
        self.before_change()
        self._check_condition(request)
        workspace, deleted = self._make(request), ChangeHead.model_validate_json(line).delete
        kept = {path: content for path, content in workspace.files.items() if path not in deleted}
        return self._commit(workspace, kept | _read_tar(archive), replace=True)

    async def _list_versions(self, request: web.Request) -> web.Response:
        versions = self._find(request).versions
        items = [
            {
                "version": number,
                "createdAt": TIME,
                "files": len(files),
                "bytes": sum(map(len, files.values())),
                "changedFiles": 1,
            }
            for number, files in enumerate(versions, 1)
        ]
        return web.json_response({"items": items[::-1]})

    async def _restore(self, request: web.Request) -> web.Response:
        workspace, version = self._find(request), (await request.json())["version"]
        if version > len(workspace.versions):
            raise _refuse(FilesReason.NO_VERSION)
        return self._commit(workspace, workspace.versions[version - 1], replace=True)

    def _commit(
        self, workspace: FakeWorkspace, files: dict[str, bytes], *, replace: bool = False, tags: bool = True
    ) -> web.Response:
        base, new = workspace.files, files if replace else workspace.files | files
        changed = sum(1 for path in base.keys() | new.keys() if base.get(path) != new.get(path))
        before = len(workspace.versions)
        if changed or not before:
            workspace.versions.append(dict(new))
        sizes = {"files": len(new), "bytes": sum(map(len, new.values()))}
        version = len(workspace.versions)
        tag = build_tag("w1", version)
        headers = {"ETag": f'"{tag}"'} if tags else {}
        numbers = {"version": version, "etag": tag, "base": before, "changedFiles": changed}
        return web.json_response({**numbers, **sizes}, headers=headers)

    async def _get_artifact(self, request: web.Request) -> web.StreamResponse:
        key = (request.query["owner"], request.match_info["uid"], request.match_info["id"])
        if key not in self.artifacts:
            raise _refuse(FilesReason.NO_ARTIFACT)
        return await self._send(request, self.artifacts[key])

    async def _delete_artifacts(self, request: web.Request) -> web.StreamResponse:
        folder = (request.query["owner"], request.match_info["uid"])
        self.artifacts = {key: content for key, content in self.artifacts.items() if key[:2] != folder}
        return web.Response(status=204)

    async def _send(self, request: web.Request, content: bytes, *, digest: bool = True) -> web.StreamResponse:
        headers = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"'} if digest else {}
        response = web.StreamResponse(headers={**headers, "Content-Length": str(len(content))})
        await response.prepare(request)
        await response.write(content[: len(content) // 2] if self.breaks_off else content)
        if self.breaks_off:
            assert request.transport is not None
            request.transport.abort()
        return response


def _read_tar(archive: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
        return {entry.name: tar.extractfile(entry).read() for entry in tar if entry.isfile()}  # type: ignore[union-attr]


def _refuse(reason: FilesReason, *, version: int | None = None) -> FilesRefused:
    return FilesRefused(reason, f"it is {reason}", version=version)
