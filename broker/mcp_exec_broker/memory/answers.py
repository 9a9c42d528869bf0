"""Memory of what a server sends: it is held while it arrives, and weighed before anybody parses it.

A dense text takes a hundred times its size as values: 16 MiB of `[],` become 1.9 GiB.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

from mcp_exec_broker.errors import ToolCallError
from mcp_exec_broker.memory.in_flight import BytesInFlight, FlightLease
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_common.util.json_weight import JsonScale

_UNCOUNTED_BYTES: Final = 2048
"""Bytes of a message whose memory is not counted: the limit on concurrent calls bounds it."""
_COPIES: Final = 2
"""Copies of a message besides those that its weight covers: its parts, or the text that leaves the broker."""
_EXACT_BYTES: Final = 4 * 1024 * 1024
"""Estimate above which punctuation in strings is left out, so that a long text takes no memory from others."""
_THREAD_BYTES: Final = 64 * 1024
"""A part with more bytes is weighed in a thread."""
_receiver: ContextVar["AnswerReceiver"] = ContextVar("receiver of what a server sends")


class AnswerRefused(Exception):
    """What a server sends takes too much memory."""


@dataclass(frozen=True, kw_only=True)
class ServerAccount:
    """The account of what a server sends outside of calls, such as its list of tools."""

    key: ObjectKey

    @property
    def namespace(self) -> str:
        """The server's namespace."""
        return self.key[0]

    @property
    def account(self) -> str:
        """Key under which memory is counted."""
        return "server/" + "/".join(self.key)

    @property
    def holder(self) -> str:
        """The server, for messages."""
        return f"server {self.key[1]}"


@dataclass(kw_only=True, eq=False)
class AnswerReceiver:
    """Whoever waits for messages of a server: a call, a listing, or the session itself."""

    lease: FlightLease
    keeps: bool = True
    """Whether memory is held until the lease ends, and not only until a message was handed over."""
    size: int = 0
    """Bytes of the largest message."""
    refused: ToolCallError | None = None
    """Why a message was refused."""
    held: int = 0
    """Bytes held for messages."""

    async def hold(self, size: int) -> None:
        """Hold memory for a message, that of earlier messages included. Raises AnswerRefused."""
        missing = size - self.held
        if missing <= 0:
            return
        try:
            await self.lease.acquire_answer(missing)
        except ToolCallError as error:
            self.refused = error
            raise AnswerRefused(error.message) from None
        self.held += missing

    def hand_over(self) -> None:
        """Give memory back that is held only until a message was handed over."""
        if not self.keeps:
            self.lease.flight.give_back(self.lease, self.held)
            self.held = 0

    def take_over(self, other: "AnswerReceiver") -> None:
        """Hold what another receiver of the same namespace holds."""
        self.lease.flight.move(other.lease, self.lease, other.held)
        self.held, other.held = self.held + other.held, 0


@dataclass(kw_only=True, eq=False)
class MessageScale:
    """Weighs one message that arrives in parts, and holds its memory. Its parts are passed on afterwards."""

    receiver: AnswerReceiver
    expected: int = 0
    """Bytes that the server announced."""
    _scale: JsonScale = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Begin with the next message."""
        self.receiver.hand_over()
        limit = self.receiver.lease.flight.limits.per_execution
        self._scale = JsonScale(limit=limit, exact_above=_EXACT_BYTES)

    async def add(self, part: bytes) -> None:
        """Weigh a part. Raises AnswerRefused."""
        scale = self._scale
        if scale.size + len(part) <= _UNCOUNTED_BYTES:
            scale.add(part)
            return
        if scale.size <= _UNCOUNTED_BYTES:
            await self.receiver.hold((1 + _COPIES) * self.expected)
        if len(part) < _THREAD_BYTES:
            scale.add(part)
        else:
            async with self.receiver.lease.flight.weighing:
                await asyncio.to_thread(scale.add, part)
        self.receiver.size = max(self.receiver.size, scale.size)
        await self.receiver.hold(scale.weight + _COPIES * scale.size)


@contextmanager
def receiving(receiver: AnswerReceiver) -> Iterator[AnswerReceiver]:
    """Count messages for this receiver, also in tasks that are started meanwhile."""
    token = _receiver.set(receiver)
    try:
        yield receiver
    finally:
        _receiver.reset(token)


def get_receiver() -> AnswerReceiver:
    """Return the receiver of the current request or session."""
    return _receiver.get()


@asynccontextmanager
async def receiving_for(flight: BytesInFlight, key: ObjectKey, *, keeps: bool) -> AsyncIterator[AnswerReceiver]:
    """Count messages for a server while the context is open. See AnswerReceiver.keeps."""
    async with flight.lease(ServerAccount(key=key)) as lease:
        with receiving(AnswerReceiver(lease=lease, keeps=keeps)) as receiver:
            yield receiver
