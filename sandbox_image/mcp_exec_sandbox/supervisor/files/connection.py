"""HTTP/1.1 client of the broker's routes for files, for one transfer in a thread: h11 over a blocking socket."""

import contextlib
import hashlib
import json
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain
from typing import Any, TypeVar

import h11

from mcp_exec_sandbox.supervisor.json_object import parse_object
from mcp_exec_tools.workspace_files import MAX_FRAME_HEAD, parse_frame_head

CONNECT_SECONDS = 3.0
IDLE_SECONDS = 15.0
"""Time for the broker to send or take the next bytes."""
READ_BYTES = 256 * 1024
MAX_JSON_BYTES = 4 * 1024 * 1024
"""The largest answer in JSON: a list of digests."""
MAX_LINE_BYTES = 16 * 1024
"""The longest line of a manifest."""
MAX_PROBLEM_BYTES = 4096
RETRY_SECONDS = (0.2, 1.0, 2.0, 3.0, 4.0, 5.0, 5.0)
"""Pauses before other attempts: a container that was killed starts again within 10 s."""
PASSING = frozenset({"Busy", "Unavailable"})
"""Reasons of refusals that another attempt may not meet."""
_HEADER_BYTES = 16 * 1024
T = TypeVar("T")


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

    def read_body(self, write: Callable[[memoryview], None], sha256: str, size: int) -> None:
        """Pass the bytes of the blob to `write`, and check them."""
        digest, left = hashlib.sha256(), size
        while left:
            if not self._fill():
                raise TransferFailed("the broker's stream of files is not complete")
            part = memoryview(self._chunk)[self._position : self._position + left]
            digest.update(part)
            write(part)
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


class OutOfTime(Exception):
    """The transfer took too long, or the supervisor has ended it."""


class Deadline:
    """End of a transfer. `cancel` may be called by another thread."""

    def __init__(self, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end = clock() + seconds
        self._seconds = seconds
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        """End the transfer at its next step."""
        self._cancelled.set()

    def check(self) -> float:
        """Return the seconds that are left. Raises OutOfTime."""
        left = self._end - self._clock()
        if self._cancelled.is_set():
            raise OutOfTime("it was cancelled")
        if left <= 0:
            raise OutOfTime(f"it took longer than {self._seconds:g} s")
        return left

    def wait(self, seconds: float) -> None:
        """Wait so long, or until the end. Raises OutOfTime at the end."""
        self._cancelled.wait(min(seconds, self.check()))
        self.check()


class TransferRefused(Exception):
    """The broker answered with an error. `reason` is its word for programs, empty if it gave none."""

    def __init__(self, status: int, text: str, reason: str = "") -> None:
        super().__init__(text or f"the broker answered {status}")
        self.status = status
        self.reason = reason


class TransferFailed(Exception):
    """The connection failed, or the answer was invalid. The request may have had its effect."""


class TransferBroken(TransferFailed):
    """The connection was refused, or it ended early: the broker may be restarting."""


class _NotModified(Exception):
    """The requested content has not changed."""


class FilesConnection:
    """Requests of one transfer, over one connection that is opened again after a failure."""

    def __init__(self, *, host: str, port: int, token: str, deadline: Deadline) -> None:
        self._address = (host, port)
        self._headers = [("host", f"{host}:{port}"), ("authorization", f"Bearer {token}")]
        self._deadline = deadline
        self._socket: socket.socket | None = None
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEADER_BYTES)

    def call(self, path: str, body: object) -> dict[str, Any]:
        """Post JSON, and return the JSON object of the response.

        Raises:
            TransferRefused: the broker answered with an error.
            TransferFailed: there was no valid answer.
            OutOfTime: the transfer is over.
        """
        return parse_answer(_collect(self.stream(path, body)))

    def upload(self, path: str, chunks: Iterable[bytes], size: int) -> dict[str, Any]:
        """Post `size` bytes, and return the JSON object of the response. Raises what `call` raises."""
        return parse_answer(_collect(self._exchange("POST", path, chunks, size)))

    def stream(self, path: str, body: object) -> Iterator[bytes]:
        """Post JSON, and yield the bytes of the response. Raises what `call` raises."""
        text = encode_line(body)
        return self._exchange("POST", path, [text], len(text))

    def read_lines(self, path: str, *, known: str | None = None) -> Iterator[bytes] | None:
        """Get lines of text. Return None if they are those of the ETag `known`. Raises what `call` raises."""
        chunks = self._exchange("GET", path, (), 0, known=known)
        try:
            first = next(chunks, b"")
        except _NotModified:
            return None
        return _split_lines(chain([first], chunks))

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def abort(self) -> None:
        """Break the connection off. Another thread may call this."""
        if (raw := self._socket) is not None:
            with contextlib.suppress(OSError):
                raw.shutdown(socket.SHUT_RDWR)

    def _exchange(
        self, method: str, path: str, chunks: Iterable[bytes], size: int, *, known: str | None = None
    ) -> Iterator[bytes]:
        """Send a request and yield the body of the response. A failure closes the connection."""
        try:
            self._send(method, path, chunks, size, known)
            yield from self._receive()
        except (OSError, h11.ProtocolError) as error:
            self.close()
            self._deadline.check()
            raise TransferBroken(f"the connection to the broker failed: {_describe(error)}") from error
        except _NotModified:
            raise
        except BaseException:
            self.close()
            raise

    def _send(self, method: str, path: str, chunks: Iterable[bytes], size: int, known: str | None) -> None:
        self._open()
        headers = [*self._headers, ("content-length", str(size))]
        if known is not None:
            headers.append(("if-none-match", known))
        data = self._http.send(h11.Request(method=method, target=path, headers=headers)) or b""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # refused before all of the body was read
            for chunk in chunks:
                data += self._http.send(h11.Data(data=chunk)) or b""
                # head and small body in one packet
                self._write(data)
                data = b""
            self._write(data + (self._http.send(h11.EndOfMessage()) or b""))

    def _receive(self) -> Iterator[bytes]:
        status = 0
        while not isinstance(event := self._next_event(), h11.EndOfMessage):
            if isinstance(event, h11.Response):
                status = event.status_code
                if status not in (200, 304):
                    raise self._read_refusal(status)
            elif isinstance(event, h11.Data):
                yield bytes(event.data)
        self._finish()
        if status == 304:
            raise _NotModified

    def _read_refusal(self, status: int) -> TransferRefused:
        body = b""
        while isinstance(event := self._next_event(), h11.Data) and len(body) < MAX_PROBLEM_BYTES:
            body += event.data
        problem = parse_object(body[:MAX_PROBLEM_BYTES]) or {}
        texts = [problem.get(name) for name in ("message", "reason")]
        text, reason = (each if isinstance(each, str) else "" for each in texts)
        if status == 404 and not reason:
            text = "this installation stores no files: broker.files.enabled of the chart's values is false"
        return TransferRefused(status, text, reason)

    def _next_event(self) -> h11.Event:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            assert self._socket is not None  # noqa: S101 - narrows the type
            self._socket.settimeout(min(IDLE_SECONDS, self._deadline.check()))
            self._http.receive_data(self._socket.recv(READ_BYTES))
        if not isinstance(event, h11.Event) or isinstance(event, h11.ConnectionClosed):
            raise ConnectionError("the broker closed the connection")
        return event

    def _open(self) -> None:
        seconds = self._deadline.check()
        if self._socket is None:
            self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEADER_BYTES)
            self._socket = socket.create_connection(self._address, timeout=min(CONNECT_SECONDS, seconds))
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _write(self, data: bytes) -> None:
        assert self._socket is not None  # noqa: S101 - `_open` has opened it
        self._socket.settimeout(min(IDLE_SECONDS, self._deadline.check()))
        if data:
            self._socket.sendall(data)

    def _finish(self) -> None:
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        else:
            self.close()


def repeat(work: Callable[[], T], deadline: Deadline, *, passing: Collection[str] = PASSING) -> T:
    """Do work again while the broker restarts or refuses for a reason that passes. Raises what `work` raises."""
    for pause in RETRY_SECONDS:
        try:
            return work()
        except TransferBroken:
            pass
        except TransferRefused as error:
            if error.reason not in passing:
                raise
        deadline.wait(pause)
    return work()


def encode_line(value: object) -> bytes:
    """Return a value as one line of JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def parse_answer(text: bytes) -> dict[str, Any]:
    """Return the JSON object of an answer or of a line of it. Raises TransferFailed if it is none."""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise TransferFailed("the broker's answer is not a JSON object")
    return answer


def _collect(chunks: Iterator[bytes]) -> bytes:
    body = bytearray()
    for chunk in chunks:
        body += chunk
        if len(body) > MAX_JSON_BYTES:
            raise TransferFailed(f"the broker's answer has more than {MAX_JSON_BYTES} bytes")
    return bytes(body)


def _split_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
        if len(rest) > MAX_LINE_BYTES:
            raise TransferFailed(f"the broker's answer has a line of more than {MAX_LINE_BYTES} bytes")
    if rest:
        yield rest


def _describe(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
