"""Blobs in one stream: for each `SHA256 SP SIZE LF`, then as many bytes."""

import hashlib
from collections.abc import Iterator
from typing import Protocol

from mcp_exec_sandbox.supervisor.files.connection import TransferFailed
from mcp_exec_tools.workspace_files import MAX_FRAME_HEAD, parse_frame_head


class BlobSink(Protocol):
    """Receiver of the bytes of one blob."""

    def write(self, data: memoryview) -> None:
        """Take the next bytes."""


class FrameReader:
    """Reader of blobs from the chunks of a response. Raises TransferFailed if the stream is invalid."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._chunk = b""
        self._position = 0

    def read_head(self) -> tuple[str, int] | None:
        """Return digest and size of the next blob, or None at the end."""
        line = b""
        while not line.endswith(b"\n") and len(line) < MAX_FRAME_HEAD:
            if not self._fill():
                break
            end = self._chunk.find(b"\n", self._position) + 1 or len(self._chunk)
            line += self._chunk[self._position : min(end, self._position + MAX_FRAME_HEAD)]
            self._position = end
        if not line:
            return None
        try:
            return parse_frame_head(line)
        except ValueError as error:
            raise TransferFailed(f"the broker's stream of files is invalid: {error}") from error

    def read_body(self, sink: BlobSink, sha256: str, size: int) -> None:
        """Write the bytes of the blob to `sink`, and check them."""
        digest, left = hashlib.sha256(), size
        while left:
            if not self._fill():
                raise TransferFailed("the broker's stream of files is not complete")
            part = memoryview(self._chunk)[self._position : self._position + left]
            digest.update(part)
            sink.write(part)
            self._position += len(part)
            left -= len(part)
        if digest.hexdigest() != sha256:
            raise TransferFailed("the broker sent a file with other content than announced")

    def _fill(self) -> bool:
        """Return whether there are unread bytes, after reading the next chunk if needed."""
        while self._position == len(self._chunk):
            chunk = next(self._chunks, None)
            if chunk is None:
                return False
            self._chunk, self._position = chunk, 0
        return True
