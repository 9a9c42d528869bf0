"""Memory of calls in flight: how many bytes arguments, answers of servers and unread results may take at once.

What a server sends is weighed while it arrives, and its memory is held before anybody parses it. A dense text takes a
hundred times its size as values: 16 MiB of `[],` become 1.9 GiB.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, Protocol

from mcp_exec_broker.core.errors import ErrorReason, ToolCallError, build_denial, build_rejection
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_common.util.weight import JsonScale

MIB: Final = 1024 * 1024
_WEIGHED_AT_ONCE: Final = 2
"""Threads that weigh: they compete with the event loop for the interpreter."""
_UNCOUNTED_BYTES: Final = 2048
"""Bytes of a message whose memory is not counted: the limit on concurrent calls bounds it."""
_COPIES: Final = 2
"""Copies of a message besides those that its weight covers: its parts, or the text that leaves the broker."""
_EXACT_BYTES: Final = 4 * 1024 * 1024
"""Maximum estimate that counts punctuation in strings; beyond, a long text would take memory from others."""
_THREAD_BYTES: Final = 64 * 1024
"""A part with more bytes is weighed in a thread."""
_receiver: ContextVar["AnswerReceiver"] = ContextVar("receiver of what a server sends")


class Holder(Protocol):
    """Whose requests are counted: a grant."""

    @property
    def namespace(self) -> str:
        """Namespace whose requests share memory."""

    @property
    def account(self) -> str:
        """Key that requests and their memory are counted by."""

    @property
    def holder(self) -> str:
        """Who has the grant, for messages."""


@dataclass(frozen=True, kw_only=True)
class FlightLimits:
    """Limits on the memory of calls in flight."""

    total: int = 128 * MIB
    """Bytes of all calls."""
    per_namespace: int = 96 * MIB
    """Bytes of the calls of one namespace, so that none can use up the total."""
    per_execution: int = 64 * MIB
    """Bytes of the calls of one execution: a text of 8 MiB with a character beyond Latin-1 takes 56 as a result."""
    requests: int = 64
    """Requests of one execution. A sandbox sends ten at once for each event loop of its code."""
    wait_seconds: float = 5.0
    """How long a call waits for memory that other executions hold: its arguments, and all parts of its answer."""


@dataclass(kw_only=True, eq=False)
class FlightLease:
    """The memory of one request, given back at its end."""

    grant: Holder
    flight: "BytesInFlight"
    held: int = 0
    """Bytes that count for the execution, its namespace and the total."""
    result_bytes: int = 0
    """Bytes that count for the execution only: others must not wait for it to read its results."""
    waited_seconds: float = 0.0
    """How long the parts of an answer have waited for memory so far."""

    async def acquire(self, size: int) -> None:
        """Hold memory for arguments, after a bounded wait.

        Raises ToolCallError: InvalidArguments if one call can never have as much, RateLimited if other calls hold it.
        """
        limits, grant = self.flight.limits, self.grant
        if self.held + size > limits.per_execution:
            raise build_rejection(
                ErrorReason.INVALID_ARGUMENTS,
                f"the arguments would take {self.held + size} bytes of memory or more, allowed are "
                f"{limits.per_execution}: send fewer values, or several calls",
            )
        if self.flight.by_execution[grant.account] + size > limits.per_execution:
            raise build_denial(
                ErrorReason.RATE_LIMITED,
                f"calls of {grant.holder} in progress may take {limits.per_execution} bytes of memory in all, results "
                "that were not read yet included; wait for them to end",
            )
        try:
            await self.flight.take_soon(self, size, seconds=limits.wait_seconds)
        except TimeoutError:
            raise build_denial(
                ErrorReason.RATE_LIMITED, "the calls of others take the memory that this broker has; try again"
            ) from None

    async def acquire_answer(self, size: int) -> None:
        """Hold memory for a part of a server's answer, after a wait that is bounded for all its parts together.

        Raises ToolCallError (ResultTooLarge).
        """
        wanted, limit = self.held + size, self.flight.limits.per_execution
        if wanted > limit:
            raise build_rejection(
                ErrorReason.RESULT_TOO_LARGE,
                f"the result would take {wanted} bytes of memory or more, allowed are {limit}: ask for fewer values, "
                "or page by page",
            )
        started = monotonic()
        try:
            await self.flight.take_soon(self, size, seconds=self.flight.limits.wait_seconds - self.waited_seconds)
        except TimeoutError:
            raise build_rejection(
                ErrorReason.RESULT_TOO_LARGE,
                "the tool was called, but other calls take the memory that this broker has for its result",
            ) from None
        finally:
            self.waited_seconds += monotonic() - started

    @contextmanager
    def waiting_for_approval(self) -> Iterator[None]:
        """Count the arguments among those of calls that wait for an approval, which may take an hour.

        They get half of the memory, so that they do not hold up the others. Raises ToolCallError (RateLimited).
        """
        flight, namespace, size = self.flight, self.grant.namespace, self.held
        for parked, limit, place in (
            (flight.parked[namespace], flight.limits.per_namespace // 2, f"in namespace {namespace}"),
            (flight.parked.total(), flight.limits.total // 2, "at this broker"),
        ):
            if size and parked + size > limit:
                raise build_denial(
                    ErrorReason.RATE_LIMITED,
                    f"the arguments of calls that wait for an approval may take {limit} bytes of memory {place}, and "
                    f"take {parked}",
                )
        flight.parked[namespace] += size
        try:
            yield
        finally:
            _subtract(flight.parked, namespace, size)

    def set_result(self, size: int) -> None:
        """Give back the memory of the arguments, and count a result that the sandbox has not read yet."""
        self.flight.give_back(self, self.held)
        self.result_bytes += size
        self.flight.by_execution[self.grant.account] += size


@dataclass(kw_only=True, eq=False)
class BytesInFlight:
    """Memory of all calls in flight. Calls that wait for it get it in their order."""

    limits: FlightLimits = field(default_factory=FlightLimits)
    total: int = 0
    by_namespace: Counter[str] = field(default_factory=Counter)
    by_execution: Counter[str] = field(default_factory=Counter)
    parked: Counter[str] = field(default_factory=Counter)
    """Bytes of calls that wait for an approval, by namespace."""
    weighing: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_WEIGHED_AT_ONCE))
    """Held while a large message is weighed in a thread."""
    _requests: Counter[str] = field(default_factory=Counter)
    _waiting: deque[tuple[asyncio.Future[None], FlightLease, int]] = field(default_factory=deque)

    def count_requests(self, grant: Holder) -> int:
        """Return the number of the execution's requests in progress."""
        return self._requests[grant.account]

    @asynccontextmanager
    async def lease(self, grant: Holder) -> AsyncIterator[FlightLease]:
        """Count a request of an execution, and release its memory at the end."""
        lease = FlightLease(grant=grant, flight=self)
        self._requests[grant.account] += 1
        try:
            yield lease
        finally:
            _subtract(self._requests, grant.account, 1)
            _subtract(self.by_execution, grant.account, lease.result_bytes)
            self.give_back(lease, lease.held)

    async def take_soon(self, lease: FlightLease, size: int, *, seconds: float) -> None:
        """Take memory as soon as it is there and nobody waits ahead. Raises TimeoutError after `seconds`."""
        if not self._waiting and self._fits(lease.grant, size):
            self._take(lease, size)
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (waiter, lease, size)
        self._waiting.append(entry)
        self._wake()  # those ahead may wait for their own namespace or execution
        try:
            async with asyncio.timeout(seconds):
                await waiter
        finally:
            if entry in self._waiting:
                self._waiting.remove(entry)
                self._wake()  # the next one may need less

    def give_back(self, lease: FlightLease, size: int) -> None:
        """Give back a part of the memory that a request holds."""
        lease.held -= size
        self.total -= size
        _subtract(self.by_namespace, lease.grant.namespace, size)
        _subtract(self.by_execution, lease.grant.account, size)
        self._wake()

    def move(self, one: FlightLease, other: FlightLease, size: int) -> None:
        """Count memory of one request for another one of its namespace."""
        one.held -= size
        other.held += size
        _subtract(self.by_execution, one.grant.account, size)
        self.by_execution[other.grant.account] += size

    def _fits(self, grant: Holder, size: int) -> bool:
        return self.total + size <= self.limits.total and self._is_within_share(grant, size)

    def _is_within_share(self, grant: Holder, size: int) -> bool:
        """Return whether neither the namespace nor the execution would have more than its share."""
        limits = self.limits
        is_within_execution = self.by_execution[grant.account] + size <= limits.per_execution
        return is_within_execution and self.by_namespace[grant.namespace] + size <= limits.per_namespace

    def _take(self, lease: FlightLease, size: int) -> None:
        lease.held += size
        self.total += size
        self.by_namespace[lease.grant.namespace] += size
        self.by_execution[lease.grant.account] += size

    def _wake(self) -> None:
        """Give memory to those who wait, in their order. Who has the share of its namespace holds up no other."""
        for entry in tuple(self._waiting):
            waiter, lease, size = entry
            if self._fits(lease.grant, size):
                self._waiting.remove(entry)
                if not waiter.done():
                    self._take(lease, size)
                    waiter.set_result(None)
            elif self._is_within_share(lease.grant, size):
                return


def _subtract(counter: Counter[str], key: str, amount: int) -> None:
    counter[key] -= amount
    if counter[key] <= 0:
        del counter[key]


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
        """Key that memory is counted by."""
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
    notes: Sequence[str] = ()
    """What was changed in the result of a call."""
    has_halves: bool = False
    """Whether halves of surrogate pairs were replaced in a message."""
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
            self.lease.waited_seconds = 0.0

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
