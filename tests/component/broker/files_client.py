"""A sandbox and a gateway that use the files of a broker."""

import hashlib
import io
import json
from collections.abc import Mapping
from time import time
from typing import Any

from tests.component.broker.conftest import SIGNER, World
from tests.support.files_client import FilesClient

from mcp_exec_api.files import WorkspaceMode
from mcp_exec_broker.features.files.feature import FilesFeature
from mcp_exec_broker.features.files.store import FilesStore
from mcp_exec_common.broker.client import BrokerClient
from mcp_exec_common.broker.files import (
    BLOBS_PATH,
    COMMIT_PATH,
    CONTENTS_PATH,
    MANIFEST_PATH,
    MISSING_PATH,
    ArtifactAllowance,
    FilesGrant,
    WorkspaceAccess,
)
from mcp_exec_tools.workspace_files import build_frame_head, parse_frame_head

Object = dict[str, Any]
OWNER = "0a" * 16


def files_grant(*, mode: str = "Write", name: str = "data", version: int | None = None, **changes: Any) -> str:
    """Return the token of a grant of files."""
    given: Object = {
        "namespace": "agents",
        "owner": OWNER,
        "caller": "0c" * 16,
        "execution": "uid-1",
        "workspace": WorkspaceAccess(name=name, mode=WorkspaceMode(mode), version=version),
        "artifacts": ArtifactAllowance(count=3, total_bytes=10_000),
        "pod_address": "127.0.0.1",
        "replica": "",
        "expires": int(time()) + 60,
    }
    return SIGNER.sign(FilesGrant(**(given | changes)))


def find_store(world: World) -> FilesStore:
    """Return the store of a broker that stores files."""
    feature = world.broker.features["files"]
    assert isinstance(feature, FilesFeature)
    assert feature.store is not None
    return feature.store


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def frame(content: bytes) -> bytes:
    return build_frame_head(digest(content), len(content)) + content


def frames(*contents: bytes) -> bytes:
    return b"".join(map(frame, contents))


def parse_frames(body: bytes) -> dict[str, bytes]:
    """Return contents by digest."""
    found = {}
    position = 0
    while position < len(body):
        start = body.index(b"\n", position) + 1
        sha256, size = parse_frame_head(body[position:start])
        found[sha256], position = body[start : start + size], start + size
    return found


def commit_body(id: str, base: int, files: Mapping[str, bytes]) -> bytes:
    lines: list[Object] = [{"id": id, "base": base, "files": len(files)}]
    lines += [{"path": path, "size": len(data), "sha256": digest(data), "mode": 420} for path, data in files.items()]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


class FakeSandbox:
    """What a supervisor does with a grant."""

    def __init__(self, world: World, token: str) -> None:
        self.world, self.token = world, token

    async def send(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
        """Send a request; return status and body."""
        headers = {"Authorization": f"Bearer {self.token}"} | headers
        body = io.BytesIO(body) if isinstance(body, bytes) else body
        async with self.world.session.request(method, self.world.url + path, data=body, headers=headers) as response:
            return response.status, await response.read()

    async def ask(self, method: str, path: str, body: Any = None) -> Object:
        """Send a request that must succeed; return its JSON."""
        status, text = await self.send(method, path, body)
        assert status == 200, text
        found: Object = json.loads(text)
        return found

    async def manifest(self) -> tuple[Object, dict[str, Object]]:
        """Return the head of the manifest, and its files by path."""
        status, text = await self.send("GET", MANIFEST_PATH)
        assert status == 200, text
        head, *lines = map(json.loads, text.splitlines())
        assert len(lines) == head["files"]
        return head, {line["path"]: line for line in lines}

    async def fetch(self) -> tuple[Object, dict[str, bytes]]:
        """Return the head of the manifest, and the contents of all files."""
        head, files = await self.manifest()
        body = {"version": head["version"], "sha256": [file["sha256"] for file in files.values()]}
        status, text = await self.send("POST", CONTENTS_PATH, json.dumps(body)) if files else (200, b"")
        assert status == 200, text
        contents = parse_frames(text)
        assert all(digest(content) == sha256 for sha256, content in contents.items())
        return head, {path: contents[file["sha256"]] for path, file in files.items()}

    async def save(self, files: Mapping[str, bytes], *, head: Object | None = None) -> Object:
        """Upload what is missing and commit."""
        head = head or (await self.manifest())[0]
        by_digest = {digest(content): content for content in files.values()}
        missing = (await self.ask("POST", MISSING_PATH, json.dumps({"sha256": list(by_digest)})))["missing"]
        await self.ask("POST", BLOBS_PATH, frames(*(by_digest[sha256] for sha256 in missing)))
        return await self.ask("POST", COMMIT_PATH, commit_body(head["id"], head["version"], files))


def files_client(world: World) -> FilesClient:
    """Return the client of gateway and operator."""
    address = world.control.removeprefix("http://")
    return FilesClient(
        BrokerClient(session=world.session, signer=SIGNER, sender="gateway", addresses=lambda: [address])
    )
