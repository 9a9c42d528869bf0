"""Artifacts: files, figures and tables that executions produced."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Final

from mcp_exec_client.errors import NotFound
from mcp_exec_client.state.channel import RequestChannel, quote_segment
from mcp_exec_client.state.results import MAX_READ_BYTES, ExecutionArtifact, ExecutionArtifacts
from mcp_exec_client.state.streams import open_download
from mcp_exec_client.suggestions import suggesting

_EXECUTIONS: Final = "/v1/executions"


@suggesting
class Artifacts:
    """Artifacts of the caller's executions, until their time to live is over."""

    def __init__(self, channel: RequestChannel) -> None:
        self._channel = channel

    async def list(self, execution: str, *, link_seconds: int | None = None) -> Sequence[ExecutionArtifact]:
        """Return the artifacts of an execution, in the order in which its code produced them.

        Each has a `url` that shows it in a browser, without a key, for so many seconds, 15 minutes by default.
        """
        query = {"linkSeconds": None if link_seconds is None else str(link_seconds)}
        items = await self._channel.fetch(ExecutionArtifacts, "GET", _path(execution), query=query)
        return self.attach(execution, items.items)

    async def get(self, execution: str, artifact: str) -> ExecutionArtifact:
        """Return the artifact with this id, or with this name if only one has it. Raises NotFound."""
        items = await self.list(execution)
        found = [item for item in items if item.id == artifact] or [item for item in items if item.name == artifact]
        if len(found) == 1:
            return found[0]
        names = ", ".join(f"{item.id} ({item.name})" for item in items[:20]) or "none"
        how = "several artifacts" if found else "no artifact"
        raise NotFound(
            f"execution {execution} has {how} {artifact[:100]!r}; it has: {names}", kind="not-found", status=404
        )

    async def read(self, execution: str, artifact: str, *, max_bytes: int = MAX_READ_BYTES) -> bytes:
        """Return the bytes of the artifact with this id or name."""
        return await (await self.get(execution, artifact)).read(max_bytes=max_bytes)

    async def save(self, execution: str, artifact: str, path: str | Path | None = None) -> Path:
        """Write the artifact with this id or name to a file, or into a folder, and return the file's path."""
        return await (await self.get(execution, artifact)).save(path)

    def attach(self, execution: str, artifacts: Sequence[ExecutionArtifact]) -> Sequence[ExecutionArtifact]:
        """Let the artifacts of an execution be read by this client, and return them."""
        for artifact in artifacts:
            artifact.attach(partial(self._open, execution, artifact.id))
        return artifacts

    def _open(self, execution: str, artifact: str) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        path = f"{_path(execution)}/{quote_segment(artifact)}"
        return open_download(self._channel.transport, path, query=self._channel.query())


def _path(execution: str) -> str:
    return f"{_EXECUTIONS}/{quote_segment(execution)}/artifacts"
