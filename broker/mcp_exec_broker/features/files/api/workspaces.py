"""Workspaces and artifacts on the control port, for gateway and operator, which check whose they are."""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mcp_exec_api.meta import field_errors
from mcp_exec_api.wire.workspaces import (
    MAX_PAGE,
    WorkspaceFile,
    WorkspaceFileList,
    WorkspaceList,
    WorkspaceSettings,
    WorkspaceVersionList,
)
from mcp_exec_broker.core.feature import Authenticate, Handler
from mcp_exec_broker.core.memory import MIB, BytesInFlight
from mcp_exec_broker.features.files.api.requests import (
    REQUEST_SECONDS,
    FilesRequest,
    answer_model,
    answer_request,
    refuse_service,
)
from mcp_exec_broker.features.files.keys import OwnerSpace
from mcp_exec_broker.features.files.requests import (
    ByteSource,
    FilesRefused,
    build_invalid,
    build_too_large,
    check_writable,
)
from mcp_exec_broker.features.files.store import FilesStore
from mcp_exec_broker.features.files.workspace.commit import (
    CommitLimits,
    Precondition,
    check_path_bytes,
    count_path_bytes,
    delete_paths,
    parse_precondition,
)
from mcp_exec_broker.features.files.workspace.manifest import Files, Location, VersionFile, index_files
from mcp_exec_broker.features.files.workspace.packs import STREAM_BYTES, PackReader, PackWriter
from mcp_exec_broker.features.files.workspace.states import WorkspaceState
from mcp_exec_broker.features.files.workspace.tar import read_tar, write_tar
from mcp_exec_common.broker.files import (
    CALLER_LIMIT,
    MAX_CHANGE_HEAD_BYTES,
    MAX_UPLOAD_SECONDS,
    ChangeHead,
    FilesReason,
    WorkspaceCount,
    build_tag,
)

_BODY_BYTES: Final = 16 * 1024
_CHANGE_MEMORY: Final = 3 * MAX_CHANGE_HEAD_BYTES
"""Memory of the first line of a change set: its bytes, and the paths in it."""
_ENTRY_BYTES: Final = 500
"""Memory of a file of an archive, without its path."""
_HELD_AT_ONCE: Final = MIB
"""Memory that is held for the next files of an archive."""
_DIGEST_BYTES: Final = 200
"""Memory of the digest of a content that is not stored again."""
_Handler = Callable[[OwnerSpace, FilesRequest], Awaitable[Response]]


@dataclass(kw_only=True, eq=False)
class WorkspacesApi:
    """The routes on files for gateway and operator. Each names namespace and owner as query parameters."""

    store: FilesStore
    namespaces: Container[str]
    flight: BytesInFlight

    def build_routes(self, authenticate: Authenticate) -> list[Route]:
        """Return the routes; `authenticate` wraps a handler."""
        one = "/v1/workspaces/{name}"
        routes: tuple[tuple[str, str, _Handler], ...] = (
            ("/v1/workspaces", "GET", self._list),
            ("/v1/workspace-count", "GET", self._count),
            (one, "GET", self._get),
            (one, "PUT", self._put),
            (one, "DELETE", self._delete),
            (f"{one}/files", "GET", self._list_files),
            (f"{one}/files/{{path:path}}", "GET", self._get_file),
            (f"{one}/files/{{path:path}}", "PUT", self._put_file),
            (f"{one}/files/{{path:path}}", "DELETE", self._delete_files),
            (f"{one}/tar", "GET", self._get_tar),
            (f"{one}/tar", "PUT", self._put_tar),
            (f"{one}/changes", "POST", self._change),
            (f"{one}/versions", "GET", self._list_versions),
            (f"{one}/restore", "POST", self._restore),
            ("/v1/artifacts/{execution}", "DELETE", self._delete_artifacts),
            ("/v1/artifacts/{execution}/{id}", "GET", self._get_artifact),
        )
        return [Route(path, authenticate(self._answer(handler)), methods=[verb]) for path, verb, handler in routes]

    def _answer(self, handler: _Handler) -> Handler:
        uploads = (self._put_file, self._put_tar, self._change)

        async def answer(request: Request) -> Response:
            query = request.query_params
            try:
                space = OwnerSpace(query.get("namespace", ""), query.get("owner", ""), query.get("caller", ""))
                if space.namespace not in self.namespaces:
                    raise build_invalid(f"namespace: this broker does not serve {space.namespace!r}")
            except FilesRefused as error:
                return refuse_service(error)
            seconds = MAX_UPLOAD_SECONDS + REQUEST_SECONDS if handler in uploads else REQUEST_SECONDS
            return await answer_request(
                request,
                space,
                self.flight,
                lambda files: handler(space, files),
                refuse=refuse_service,
                seconds=seconds,
            )

        return answer

    @property
    def _writer_memory(self) -> int:
        return self.store.storage.writer_bytes + STREAM_BYTES

    # workspaces

    async def _list(self, space: OwnerSpace, request: FilesRequest) -> Response:
        states = await self.store.states.list_states(space)
        return answer_model(
            WorkspaceList(
                items=[await self.store.workspaces.describe(space, state) for state in states],
                stored_bytes=await self.store.usage.measure(space),
                max_stored_bytes=self.store.limits.owner_bytes,
                max_workspaces=self.store.limits.owner_workspaces,
            )
        )

    async def _count(self, space: OwnerSpace, request: FilesRequest) -> Response:
        return answer_model(WorkspaceCount(count=await self.store.states.count_of_caller(space)))

    async def _get(self, space: OwnerSpace, request: FilesRequest) -> Response:
        found = await self.store.workspaces.describe(space, await self._find(space, request))
        return answer_model(found, etag=found.etag)

    async def _put(self, space: OwnerSpace, request: FilesRequest) -> Response:
        settings = await request.read_model(WorkspaceSettings, _BODY_BYTES)
        limit = _read_caller_limit(request)
        state = await self.store.workspaces.put(space, _get_name(request), settings, caller_limit=limit)
        return answer_model(await self.store.workspaces.describe(space, state))

    async def _delete(self, space: OwnerSpace, request: FilesRequest) -> Response:
        await self.store.states.delete(space, _get_name(request))
        return Response(status_code=204)

    async def _list_versions(self, space: OwnerSpace, request: FilesRequest) -> Response:
        state = await self._find(space, request)
        return answer_model(WorkspaceVersionList(items=await self.store.workspaces.list_versions(space, state)))

    async def _restore(self, space: OwnerSpace, request: FilesRequest) -> Response:
        version = (await request.read_json(_BODY_BYTES, "version")).get("version")
        if type(version) is not int or version < 1:
            raise build_invalid("version: must be the number of a version")
        state = await self._find(space, request)
        precondition = _read_precondition(request)
        result = await self.store.workspaces.restore(
            space,
            state,
            version,
            check=lambda head, changes: precondition.check(state.id, head, changes=changes),
            hold=request.hold,
        )
        return answer_model(result, etag=result.etag)

    # files

    async def _list_files(self, space: OwnerSpace, request: FilesRequest) -> Response:
        state = await self._find(space, request)
        query = request.http.query_params
        prefix, after, limit = (
            query.get("prefix", ""),
            query.get("after", ""),
            _read_number(request, "limit") or MAX_PAGE,
        )
        async with request.hold_briefly() as hold:
            manifest = await self.store.workspaces.read(space, state, _read_number(request, "version"), hold=hold)
        found = [entry for path, entry in manifest.files.items() if path > after and path.startswith(prefix)]
        page = found[: min(limit, MAX_PAGE)]
        items = [WorkspaceFile.model_construct(**entry._asdict()) for entry in page]
        more = page[-1].path if page and len(found) > len(page) else None
        etag = build_tag(state.id, manifest.version)
        return answer_model(WorkspaceFileList(version=manifest.version, etag=etag, items=items, next=more), etag=etag)

    async def _get_file(self, space: OwnerSpace, request: FilesRequest) -> Response:
        state, path = await self._find(space, request), str(request.http.path_params["path"])
        version, entry, location = await self._find_file(space, request, state, path)
        await request.hold_stream()
        parts = _read_content(self.store.workspaces.open_reader(space, state), entry, location)
        headers = {"ETag": f'"{entry.sha256}"', "X-Workspace-Version": str(version)}
        return request.stream(parts, media_type="application/octet-stream", size=entry.size, headers=headers)

    async def _find_file(
        self, space: OwnerSpace, request: FilesRequest, state: WorkspaceState, path: str
    ) -> tuple[int, VersionFile, Location | None]:
        """Return the version that is asked for, a file in it, and where its content is. Raises FilesRefused."""
        async with request.hold_briefly() as hold:
            manifest = await self.store.workspaces.read(space, state, _read_number(request, "version"), hold=hold)
            entry = manifest.files.get(path)
            if entry is None:
                raise FilesRefused(FilesReason.NO_FILE, f"version {manifest.version} has no file {path[:200]!r}")
            return manifest.version, entry, manifest.contents.get(entry.sha256)

    async def _put_file(self, space: OwnerSpace, request: FilesRequest) -> Response:
        path = str(request.http.path_params["path"])
        mode = 0o755 if request.http.query_params.get("executable") == "true" else 0o644
        check_writable(path)
        precondition = _read_precondition(request)
        state, limits, writer = await self._open_writer(space, request, precondition)
        async with writer:
            sha256, size = await writer.add_stream(
                request.http.stream(), max_bytes=limits.max_file_bytes, refuse=partial(_too_large, path, limits)
            )
        request.lease.flight.give_back(request.lease, self._writer_memory)
        entry = VersionFile(path, size, sha256, mode)
        result = await self.store.workspaces.edit(
            space,
            state,
            lambda files: index_files({**files, path: entry}.values()),
            contents=writer.stored,
            check=lambda head, changes: precondition.check(state.id, head, path, changes=changes),
            caller_limit=_read_caller_limit(request),
            hold=request.hold,
        )
        return answer_model(result)

    async def _delete_files(self, space: OwnerSpace, request: FilesRequest) -> Response:
        state, path = await self._find(space, request), str(request.http.path_params["path"]).rstrip("/")
        precondition = _read_precondition(request)

        def remove(files: Files) -> Files:
            kept = delete_paths(files, [path])
            if len(kept) == len(files):
                raise FilesRefused(FilesReason.NO_FILE, f"the workspace has no file or folder {path[:200]!r}")
            return kept

        result = await self.store.workspaces.edit(
            space,
            state,
            remove,
            check=lambda head, changes: precondition.check(state.id, head, path, changes=changes),
            hold=request.hold,
        )
        return answer_model(result, etag=result.etag)

    async def _get_tar(self, space: OwnerSpace, request: FilesRequest) -> Response:
        state = await self._find(space, request)
        await request.hold_stream()
        number = _read_number(request, "version")
        manifest = await self.store.workspaces.read(space, state, number, hold=request.hold, keeps=True)
        reader = self.store.workspaces.open_reader(space, state)
        parts = write_tar(manifest, reader, prefix=request.http.query_params.get("prefix", ""))
        tag = build_tag(state.id, manifest.version)
        headers = {"ETag": f'"{tag}"', "X-Workspace-Version": str(manifest.version)}
        return request.stream(parts, media_type="application/x-tar", size=None, headers=headers)

    async def _put_tar(self, space: OwnerSpace, request: FilesRequest) -> Response:
        replaces = request.http.query_params.get("replace") == "true"
        return await self._write_archive(space, request, request.http.stream(), [], replaces=replaces)

    async def _change(self, space: OwnerSpace, request: FilesRequest) -> Response:
        await request.hold(_CHANGE_MEMORY)
        source = ByteSource(request.http.stream())
        head = _read_change_head(await source.read_line(MAX_CHANGE_HEAD_BYTES))
        return await self._write_archive(space, request, source.rest(), head.delete)

    async def _write_archive(
        self,
        space: OwnerSpace,
        request: FilesRequest,
        parts: AsyncIterator[bytes],
        deleted: Sequence[str],
        *,
        replaces: bool = False,
    ) -> Response:
        """Commit the files of an archive, without other files that are deleted or replaced, as one version."""
        precondition = _read_precondition(request)
        state, limits, writer = await self._open_writer(space, request, precondition)
        entries, total, paths, memory, held = list[VersionFile](), 0, 0, 0, 0
        async with writer:
            async for file in read_tar(parts, max_files=limits.max_files):
                total, paths = total + file.size, paths + count_path_bytes(file.path)
                check_path_bytes(paths)
                memory += _ENTRY_BYTES + sys.getsizeof(file.path)
                if memory > held:
                    await request.hold(_HELD_AT_ONCE)
                    held += _HELD_AT_ONCE
                if file.size > limits.max_file_bytes:
                    raise _too_large(file.path, limits)
                if total > limits.max_bytes:
                    raise build_too_large(f"the archive's files have more than {limits.max_bytes} bytes")
                too_large = partial(_too_large, file.path, limits)
                sha256, size = await writer.add_stream(file.parts, max_bytes=file.size, refuse=too_large)
                entries.append(VersionFile(file.path, size, sha256, file.mode))
        request.lease.flight.give_back(request.lease, self._writer_memory)
        new = index_files(entries)

        def change(files: Files) -> Files:
            return new if replaces else index_files({**delete_paths(files, deleted), **new}.values())

        result = await self.store.workspaces.edit(
            space,
            state,
            change,
            contents=writer.stored,
            check=lambda head, changes: precondition.check(state.id, head, changes=changes),
            caller_limit=_read_caller_limit(request),
            hold=request.hold,
        )
        return answer_model(result, etag=result.etag)

    async def _get_artifact(self, space: OwnerSpace, request: FilesRequest) -> Response:
        names = request.http.path_params
        artifact = await self.store.artifacts.open(space, names["execution"], names["id"])
        await request.hold_stream()
        headers = {"ETag": f'"{artifact.head.sha256}"', "X-Artifact-Name": quote(artifact.head.name)}
        return request.stream(
            artifact.content, media_type=artifact.head.media_type, size=artifact.head.size, headers=headers
        )

    async def _delete_artifacts(self, space: OwnerSpace, request: FilesRequest) -> Response:
        await self.store.artifacts.delete_all(space, request.http.path_params["execution"])
        return Response(status_code=204)

    async def _find(self, space: OwnerSpace, request: FilesRequest) -> WorkspaceState:
        return await self.store.states.get(space, _get_name(request))

    async def _open_writer(
        self, space: OwnerSpace, request: FilesRequest, precondition: Precondition
    ) -> tuple[WorkspaceState, CommitLimits, PackWriter]:
        """Open a writer to a workspace, or to a draft: one that is refused before its first version does not exist."""
        limit = _read_caller_limit(request)
        state = await self.store.states.draft(space, _get_name(request), caller_limit=limit)
        if state.number == 0:
            precondition.check_missing()
        else:
            await self.store.states.touch(space, state)
        async with request.hold_briefly() as hold:
            head = await self.store.workspaces.read(space, state, hold=hold, keeps=True)
            if head.contents:
                await request.hold(_DIGEST_BYTES * len(head.contents))
            known = frozenset(head.contents)
            del head  # its memory is given back
        await request.hold(self._writer_memory + MIB)
        writer = await self.store.workspaces.open_writer(space, state, known=known)
        return state, self.store.workspaces.get_limits(state), writer


async def _refuse_all(request: Request) -> Response:
    message = "this installation stores no files: broker.files.enabled of the chart's values is false"
    return refuse_service(FilesRefused(FilesReason.DISABLED, message))


def build_disabled_routes(authenticate: Authenticate) -> list[Route]:
    """Return the routes of an installation that stores no files, which refuse all requests on them."""
    methods = ["GET", "PUT", "POST", "DELETE"]
    paths = ("/v1/workspaces", "/v1/workspaces/{rest:path}", "/v1/workspace-count", "/v1/artifacts/{rest:path}")
    return [Route(path, authenticate(_refuse_all), methods=methods) for path in paths]


async def _read_content(reader: PackReader, entry: VersionFile, location: Location | None) -> Any:
    if location is None:  # an empty file
        return
    async for _, _, stream in reader.read({entry.sha256: location}):
        async for part in stream.iterate(location.size):
            yield part


def _get_name(request: FilesRequest) -> str:
    return str(request.http.path_params["name"])


def _read_precondition(request: FilesRequest) -> Precondition:
    headers = request.http.headers
    return parse_precondition(headers.get("if-match"), headers.get("if-none-match"))


def _read_change_head(line: bytes) -> ChangeHead:
    """Parse the first line of a change set. Raises FilesRefused."""
    try:
        return ChangeHead.model_validate_json(line)
    except ValidationError as error:
        raise build_invalid(f"the first line of a change set: {field_errors(error, ChangeHead)[0].format()}") from None


def _read_number(request: FilesRequest, name: str) -> int | None:
    """Return a query parameter that is a positive number, or None if it is not there. Raises FilesRefused."""
    text = request.http.query_params.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdecimal() or not 0 < len(text) <= 10 or int(text) < 1:
        raise build_invalid(f"{name}: must be a positive number, and is {text[:40]!r}")
    return int(text)


def _read_caller_limit(request: FilesRequest) -> int | None:
    """Return how many workspaces the owner's caller may have, or None if only the store's limit applies."""
    text = request.http.query_params.get(CALLER_LIMIT)
    if text is None:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 10:
        raise build_invalid(f"{CALLER_LIMIT}: must be a number, and is {text[:40]!r}")
    return int(text)


def _too_large(path: str, limits: CommitLimits) -> FilesRefused:
    return build_too_large(f"file {path[:100]!r} has more than {limits.max_file_bytes} bytes, which is the limit")
