"""The port for sandboxes, and files on it. All input is hostile: a grant names the one workspace and the artifacts."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mcp_exec_api.files import WorkspaceMode
from mcp_exec_broker.core.memory import MIB, BytesInFlight
from mcp_exec_broker.features.files.api.auth import FilesAuthenticator
from mcp_exec_broker.features.files.api.requests import FilesRequest, answer_model, answer_request, refuse_sandbox
from mcp_exec_broker.features.files.artifacts import parse_artifact_head
from mcp_exec_broker.features.files.keys import OwnerSpace
from mcp_exec_broker.features.files.requests import ByteSource, FilesRefused, build_invalid, build_too_large
from mcp_exec_broker.features.files.store import FilesStore
from mcp_exec_broker.features.files.usage import MAX_COMMIT_BYTES
from mcp_exec_broker.features.files.workspace.manifest import EMPTY_DIGEST, Location, Manifest, index_files, parse_entry
from mcp_exec_broker.features.files.workspace.packs import PackReader
from mcp_exec_broker.features.files.workspace.states import WorkspaceState
from mcp_exec_common.broker.files import (
    ARTIFACTS_PATH,
    BLOBS_PATH,
    COMMIT_PATH,
    CONTENTS_PATH,
    MANIFEST_PATH,
    MAX_DIGESTS,
    MAX_LINE_BYTES,
    MISSING_PATH,
    ArtifactResult,
    CommitHead,
    FilesGrant,
    FilesReason,
    ManifestHead,
    UploadResult,
    WorkspaceAccess,
)
from mcp_exec_tools.workspace_files import MAX_FRAME_HEAD, build_frame_head, is_digest, parse_frame_head

FILES_PREFIX: Final = "/v1/files/"
_DIGESTS_BYTES: Final = 80 * MAX_DIGESTS
_LINES: Final = 200
"""Files of a manifest that are sent at once."""
_SEND_BYTES: Final = 256 * 1024
_LINE_MEMORY: Final = 3
"""Memory of a byte of a commit: its line, the parsed file, and the new version."""


@dataclass(frozen=True, kw_only=True)
class _Workspace:
    """The workspace of a grant."""

    access: WorkspaceAccess
    space: OwnerSpace
    state: WorkspaceState


@dataclass(kw_only=True, eq=False)
class SandboxFilesApi:
    """The routes on files for sandboxes."""

    store: FilesStore
    authenticator: FilesAuthenticator
    flight: BytesInFlight

    def build_app(self) -> Starlette:
        """Return the ASGI application."""
        routes: tuple[tuple[str, str, Any], ...] = (
            (MANIFEST_PATH, "GET", self._get_manifest),
            (MISSING_PATH, "POST", self._list_missing),
            (CONTENTS_PATH, "POST", self._get_contents),
            (BLOBS_PATH, "POST", self._upload),
            (COMMIT_PATH, "POST", self._commit),
            (ARTIFACTS_PATH, "POST", self._add_artifact),
        )
        return Starlette(routes=[Route(path, self._answer(handler), methods=[verb]) for path, verb, handler in routes])

    def _answer(self, handler: Any) -> Any:
        async def answer(request: Request) -> Response:
            peer = request.client.host if request.client else ""
            try:
                grant = self.authenticator.authenticate(request.headers.get("authorization", ""), peer=peer)
            except FilesRefused as error:
                return refuse_sandbox(error)
            return await answer_request(
                request, grant, self.flight, lambda files: handler(grant, files), refuse=refuse_sandbox
            )

        return answer

    async def _get_manifest(self, grant: FilesGrant, request: FilesRequest) -> Response:
        workspace = await self._open(grant, creates=True)
        await self.store.states.touch(workspace.space, workspace.state)
        known = request.http.headers.get("if-none-match")
        if known is not None and known == f'"{workspace.state.id}-{await self._read_number(workspace, request)}"':
            return Response(status_code=304, headers={"ETag": known})
        await request.hold_stream()
        manifest = await self.store.workspaces.read(
            workspace.space, workspace.state, workspace.access.version, hold=request.hold, keeps=True
        )
        tag = f'"{workspace.state.id}-{manifest.version}"'
        limits = self.store.workspaces.get_limits(workspace.state, workspace.access)
        head = ManifestHead(
            id=workspace.state.id,
            version=manifest.version,
            files=len(manifest.files),
            bytes=manifest.total_bytes,
            max_bytes=limits.max_bytes,
            max_files=limits.max_files,
            max_file_bytes=limits.max_file_bytes,
        )
        lines = _write_lines(head, manifest)
        return request.stream(lines, media_type="application/x-ndjson", size=None, headers={"ETag": tag})

    async def _read_number(self, workspace: _Workspace, request: FilesRequest) -> int:
        """Return the number of the version that the grant is for, if it can be read. Raises FilesRefused."""
        number, read = workspace.access.version, self.store.workspaces.read
        async with request.hold_briefly() as hold:
            return (await read(workspace.space, workspace.state, number, hold=hold)).version

    async def _list_missing(self, grant: FilesGrant, request: FilesRequest) -> Response:
        workspace = await self._open(grant, writes=True)
        digests = _read_digests((await request.read_json(_DIGESTS_BYTES, "sha256")).get("sha256"))
        async with request.hold_briefly() as hold:
            head = await self.store.workspaces.read(workspace.space, workspace.state, hold=hold)
        pending = self.store.pending.find(grant.execution, workspace.state.id)
        known = (head.contents, pending, {EMPTY_DIGEST})
        return JSONResponse({"missing": [sha256 for sha256 in digests if not any(sha256 in each for each in known)]})

    async def _get_contents(self, grant: FilesGrant, request: FilesRequest) -> Response:
        workspace = await self._open(grant)
        body = await request.read_json(_DIGESTS_BYTES, "version", "sha256")
        version = body.get("version")
        if type(version) is not int or version < 1:
            raise build_invalid("version: must be the number of a version")
        if workspace.access.version not in (None, version):
            raise FilesRefused(FilesReason.NOT_ALLOWED, f"the grant is for version {workspace.access.version}")
        digests = _read_digests(body.get("sha256"))
        contents = await self._locate(workspace, request, version, digests)
        await request.hold_stream()
        size = sum(len(build_frame_head(sha256, place.size)) + place.size for sha256, place in contents.items())
        empty = build_frame_head(EMPTY_DIGEST, 0) if EMPTY_DIGEST in digests else b""
        frames = _write_frames(empty, self.store.workspaces.open_reader(workspace.space, workspace.state), contents)
        parts = self.store.metrics.fetching(frames)
        return request.stream(parts, media_type="application/octet-stream", size=size + len(empty))

    async def _locate(
        self, workspace: _Workspace, request: FilesRequest, version: int, digests: list[str]
    ) -> dict[str, Location]:
        """Return where contents of a version are, without the empty one. Raises FilesRefused."""
        async with request.hold_briefly() as hold:
            manifest = await self.store.workspaces.read(workspace.space, workspace.state, version, hold=hold)
            stored = [sha256 for sha256 in digests if sha256 != EMPTY_DIGEST]
            unknown = next((sha256 for sha256 in stored if sha256 not in manifest.contents), None)
            if unknown is not None:
                raise FilesRefused(FilesReason.NO_FILE, f"version {version} has no content {unknown}")
            return {sha256: manifest.contents[sha256] for sha256 in stored}

    async def _upload(self, grant: FilesGrant, request: FilesRequest) -> Response:
        workspace = await self._open(grant, writes=True)
        pending, workspaces = self.store.pending, self.store.workspaces
        await request.hold(self.store.storage.writer_bytes + MIB)
        limits = workspaces.get_limits(workspace.state, workspace.access)
        known = dict(pending.find(grant.execution, workspace.state.id))
        allowed = limits.max_bytes - sum(place.size for place in known.values())
        started, count, total = pending.clock(), 0, 0
        writer = await workspaces.open_writer(workspace.space, workspace.state, known=known)
        source = ByteSource(request.http.stream())
        try:
            async with writer:
                while line := await source.read_line(MAX_FRAME_HEAD):
                    sha256, size = _read_frame_head(line)
                    count, total = count + 1, total + size
                    if size > limits.max_file_bytes:
                        raise build_too_large(f"a content has {size} bytes, allowed are {limits.max_file_bytes}")
                    if count > MAX_DIGESTS or total > allowed:
                        raise build_too_large(
                            f"an upload has at most {MAX_DIGESTS} contents, and those that wait for a commit have at "
                            f"most {limits.max_bytes} bytes in all"
                        )
                    await writer.add(sha256, size, source.iterate(size))
        finally:  # what is durable need not be sent again
            if writer.stored:
                pending.add(
                    grant.execution,
                    workspace.state.id,
                    writer.stored,
                    namespace=grant.namespace,
                    started=started,
                )
        return answer_model(UploadResult(contents=count, bytes=total))

    async def _commit(self, grant: FilesGrant, request: FilesRequest) -> Response:
        workspace = await self._open(grant, writes=True)
        length = request.length
        if length is None or length > MAX_COMMIT_BYTES:
            raise build_too_large(f"a commit needs a Content-Length of at most {MAX_COMMIT_BYTES} bytes")
        await request.hold(_LINE_MEMORY * length + MIB)
        source = ByteSource(request.http.stream())
        head = _read_commit_head(await source.read_line(MAX_LINE_BYTES))
        if head.id != workspace.state.id:
            raise FilesRefused(FilesReason.CONFLICT, "the workspace was deleted meanwhile")
        entries = []
        while line := await source.read_line(MAX_LINE_BYTES):
            entries.append(parse_entry(line))
            if len(entries) > head.files:
                break
        if len(entries) != head.files:
            raise build_invalid(f"files: the commit has another number of lines than {head.files}")
        result = await self.store.workspaces.commit(
            workspace.space,
            workspace.state,
            index_files(entries),
            base=head.base,
            execution=grant.execution,
            limits=self.store.workspaces.get_limits(workspace.state, workspace.access),
            hold=request.hold,
        )
        return answer_model(result)

    async def _add_artifact(self, grant: FilesGrant, request: FilesRequest) -> Response:
        if grant.artifacts is None:
            raise FilesRefused(FilesReason.NOT_ALLOWED, "the grant has no artifacts")
        await request.hold(self.store.storage.writer_bytes + MIB)
        source = ByteSource(request.http.stream())
        head = parse_artifact_head(await source.read_line(MAX_LINE_BYTES))
        space = OwnerSpace(grant.namespace, grant.owner, grant.caller)
        parts = source.iterate(head.size)
        id = await self.store.artifacts.add(space, grant.execution, head, parts, grant.artifacts)
        return answer_model(ArtifactResult(id=id))

    async def _open(self, grant: FilesGrant, *, writes: bool = False, creates: bool = False) -> _Workspace:
        """Return the grant's workspace. Raises FilesRefused."""
        access = grant.workspace
        if access is None:
            raise FilesRefused(FilesReason.NOT_ALLOWED, "the grant has no workspace")
        may_write = access.mode is WorkspaceMode.WRITE
        if writes and not may_write:
            raise FilesRefused(FilesReason.NOT_ALLOWED, "the grant allows to read the workspace only")
        space = OwnerSpace(grant.namespace, grant.owner, grant.caller)
        find = self.store.states.open if creates and may_write else self.store.states.get
        return _Workspace(access=access, space=space, state=await find(space, access.name))


def _read_digests(value: object) -> list[str]:
    """Return digests without repetitions. Raises FilesRefused."""
    if not isinstance(value, list) or len(value) > MAX_DIGESTS:
        raise build_invalid(f"sha256: must be a list of at most {MAX_DIGESTS} digests")
    if not all(isinstance(each, str) and is_digest(each) for each in value):
        raise build_invalid("sha256: each must be 64 lower-case hexadecimal digits")
    return list(dict.fromkeys(value))


def _read_frame_head(line: bytes) -> tuple[str, int]:
    try:
        return parse_frame_head(line)
    except ValueError as error:
        raise build_invalid(error) from None


def _read_commit_head(line: bytes) -> CommitHead:
    try:
        return CommitHead.model_validate_json(line)
    except ValidationError:
        raise build_invalid("the first line of a commit is a JSON object with id, base and files") from None


async def _write_lines(head: ManifestHead, manifest: Manifest) -> AsyncIterator[bytes]:
    yield head.model_dump_json(by_alias=True).encode() + b"\n"
    entries = list(manifest.files.values())
    for start in range(0, len(entries), _LINES):
        yield "".join(entry.to_line() for entry in entries[start : start + _LINES]).encode()


async def _write_frames(empty: bytes, reader: PackReader, contents: Mapping[str, Location]) -> AsyncIterator[bytes]:
    """Yield frames in parts that are neither small nor large."""
    buffer = bytearray(empty)
    async for sha256, location, stream in reader.read(contents):
        buffer += build_frame_head(sha256, location.size)
        if location.size <= _SEND_BYTES:
            buffer += await stream.read(location.size)
        else:
            async for part in stream.iterate(location.size):
                yield bytes(buffer) + part
                buffer.clear()
        if len(buffer) >= _SEND_BYTES:
            yield bytes(buffer)
            buffer.clear()
    yield bytes(buffer)
