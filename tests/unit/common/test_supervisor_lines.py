"""Event streams of supervisors, which may come in pieces of any size."""

import json
from collections.abc import AsyncIterator
from typing import Any, ClassVar, cast

import aiohttp
import pytest

from mcp_exec_common.supervisor.client import MAX_LINE_BYTES, SupervisorConnection
from mcp_exec_common.supervisor.protocol import SandboxError, TextEvent


class FakeResponse:
    """A response of status 200 whose body comes in given pieces."""

    status = 200
    url = "http://pod"
    headers: ClassVar[dict[str, str]] = {}

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces
        self.content = self

    async def __aenter__(self) -> "FakeResponse":
        return self

    async def __aexit__(self, *exception: object) -> None:
        return None

    async def iter_any(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


async def read(pieces: list[bytes], *, seconds: float = 60) -> list[str]:
    connection = SupervisorConnection(session=cast(aiohttp.ClientSession, None), url="http://pod", headers={})
    events = connection.read_events(cast(Any, FakeResponse(pieces)), timeout_seconds=seconds)
    return [event.text async for event in events if isinstance(event, TextEvent)]


def line(text: str, seq: int = 1) -> bytes:
    return json.dumps({"seq": seq, "at": "2026-01-01T00:00:00Z", "type": "stdout", "text": text}).encode() + b"\n"


async def test_a_long_line_in_single_bytes_is_rejected_before_the_test_times_out() -> None:
    with pytest.raises(SandboxError, match="longer than a run's"):
        await read([b"x"] * (MAX_LINE_BYTES + 1))


@pytest.mark.parametrize("size", [1, 7, 60, 10_000])
async def test_lines_are_the_same_in_pieces_of_any_size(size: int) -> None:
    end = b'{"seq": 3, "at": "2026-01-01T00:00:00Z", "type": "end", "phase": "Succeeded"}\n'
    stream = line("one") + b"\n" + line("two", 2) + end
    pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
    assert await read(pieces) == ["one", "two"]


async def test_a_stream_that_ends_within_a_line_is_an_error() -> None:
    with pytest.raises(SandboxError, match="ended before the run"):
        await read([line("one"), b'{"seq": 3'])


@pytest.mark.parametrize("seq", [1, 2])
async def test_an_event_that_comes_again_or_too_late_is_an_error(seq: int) -> None:
    with pytest.raises(SandboxError, match=f"event {seq} follows event 2"):
        await read([line("one", 2), line("two", seq)])


async def test_a_stream_that_never_pauses_ends_at_its_deadline() -> None:
    with pytest.raises(SandboxError, match="no end within"):
        await read([line("x", number) for number in range(1, 1000)], seconds=-1)
