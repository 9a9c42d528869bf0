"""Bridge: serves a stdio MCP server over TCP to clients that have its token.

    bridge.py install FOLDER          copies this file to the folder, and with --ca-bundle a file of authorities
    bridge.py serve -- COMMAND...     accepts connections; each is a session with its own process

Bridge and client first prove themselves, so that neither a stranger at the address nor a relay gets anything:

    GET /v1/proof?nonce=NONCE HTTP/1.1                  as clients ask the supervisors of sandboxes
    {"proof": "..", "address": "..", "nonce": ".."}     an HMAC by the token's digest, and a nonce of the bridge
    {"token": "..", "version": 2}                       the token, masked by an HMAC by its digest, as in SCRAM

The bridge replies to this line `{"ok": true}`, or `{"error": ".."}` and closes the connection. After that, bytes flow
both ways as on the server's standard input and output. The server's standard error goes to the bridge's. If the
connection closes, the process group is killed. If the process exits, the connection is closed; a client whose line has
`"exit": true` is first sent one more line, the JSON-RPC notification `mcp-exec/exited` with the exit code and the last
line of the server's standard error.

This file is copied into images of other projects: it needs Python 3.9 and nothing else. It reads MCP_EXEC_TOKEN_FILE (a
file with the token's digest, read for each client; the token itself is never in the pod), MCP_EXEC_MAX_SESSIONS and
MCP_EXEC_PORT. The server gets the rest of the environment.

The operator writes the digest once the pod exists. Until then the bridge does not listen, so the pod is not ready.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import hmac
import ipaddress
import json
import os
import re
import secrets
import shutil
import signal
import socket
import sys
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

VERSION = 2
DEFAULT_PORT = 8083
HELLO_SECONDS = 10.0
"""Seconds within which a client must prove itself."""
HELLO_BYTES = 4096
"""Longest request for a proof, and longest line with a token."""
DIGEST_SECONDS = 0.1
"""Seconds between two looks for the first digest."""
MAX_UNAUTHENTICATED = 64
"""Most connections that have not sent their token yet."""
PROOF_PURPOSE = "mcp-exec proof 1"
RETURN_PURPOSE = "mcp-exec token 1"
REQUEST = re.compile(rb"GET /v1/proof\?nonce=([0-9a-f]{64}) HTTP/1\.1\r\n")
HEXADECIMAL = re.compile(r"[0-9a-f]{64}")
GRACE_SECONDS = 2.0
"""Seconds between SIGTERM and SIGKILL to a server."""
CHUNK = 65536
PUBLIC_AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
MAX_BUNDLE_BYTES = 512 * 1024
TAIL_BYTES = 2048
"""Longest line of standard error that is reported; part of one could have half a secret."""


@dataclass(frozen=True)
class Settings:
    """Settings of the bridge, from the environment."""

    token_file: str
    """File with the hexadecimal digest of the token that clients send. Its content may change."""
    max_sessions: int = 16
    """Most concurrent sessions, each with a process."""
    port: int = DEFAULT_PORT
    """TCP port; 0 means a free one."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        """Read the settings. Raises ValueError with the name of a variable that is missing or invalid."""
        token_file = environment.get("MCP_EXEC_TOKEN_FILE", "")
        if not token_file:
            raise ValueError("MCP_EXEC_TOKEN_FILE must be the path of a file")
        return cls(
            token_file=token_file,
            max_sessions=_parse_number(environment, "MCP_EXEC_MAX_SESSIONS", 16, 1, 4096),
            port=_parse_number(environment, "MCP_EXEC_PORT", DEFAULT_PORT, 0, 65535),
        )


def _parse_number(environment: Mapping[str, str], name: str, default: int, lowest: int, highest: int) -> int:
    text = environment.get(name, str(default))
    if not text.isdecimal() or not lowest <= int(text) <= highest:
        raise ValueError(f"{name} must be a number from {lowest} to {highest}")
    return int(text)


def _read_digest(path: str) -> str:
    """Return the digest in a file. Raises SessionRefused if there is none."""
    try:
        with open(path, encoding="ascii") as file:
            digest = file.read(128).strip()
    except (OSError, ValueError) as error:
        raise SessionRefused(f"the digest of the token can't be read: {type(error).__name__}") from error
    if not HEXADECIMAL.fullmatch(digest):
        raise SessionRefused("the digest of the token must be 64 hexadecimal digits")
    return digest


class SessionRefused(Exception):
    """A connection gets no session. The text is sent to the client."""


def log(message: str, **fields: object) -> None:
    """Write one JSON line to standard error."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    sys.stderr.write(json.dumps({"at": at, "logger": "bridge", "message": message, **fields}) + "\n")
    sys.stderr.flush()


class Bridge:
    """TCP server that gives each authenticated connection its own process of the stdio server."""

    def __init__(self, *, settings: Settings, command: list[str], environment: Mapping[str, str]) -> None:
        self._settings = settings
        self._command = command
        self._environment = {name: value for name, value in environment.items() if not name.startswith("MCP_EXEC_")}
        self._unauthenticated: dict[asyncio.Task[None], None] = {}
        """Connections that have not sent their token yet, the oldest first."""
        self._sessions = 0
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.AbstractServer | None = None

    async def start(self) -> int:
        """Start to accept connections and return the port."""
        listener = _open_listener(self._settings.port)
        self._server = await asyncio.start_server(self._handle_connection, sock=listener, limit=CHUNK)
        return int(listener.getsockname()[1])

    async def stop(self) -> None:
        """Stop accepting connections and end all sessions."""
        if self._server is not None:
            self._server.close()
        connections = list(self._connections)
        for task in connections:
            task.cancel()
        if connections:
            await asyncio.wait(connections, timeout=2 * GRACE_SECONDS)

    async def _handle_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # asyncio runs this method as a task
        self._connections.add(task)
        try:
            await self._serve_connection(reader, writer)
        except SessionRefused as error:
            log("refused a connection", reason=str(error))
            with contextlib.suppress(OSError):
                await _send(writer, {"error": str(error)})
        except (OSError, EOFError):
            pass  # the client disconnected, as a probe of the port does
        except asyncio.CancelledError:
            pass  # cancelled by `stop`; asyncio would log a cancelled handler as an error
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wants_exit = await self._authenticate(reader, writer)
        if self._sessions >= self._settings.max_sessions:
            raise SessionRefused(f"the limit of {self._settings.max_sessions} sessions is reached")
        self._sessions += 1
        try:
            await self._run_session(reader, writer, wants_exit=wants_exit)
        finally:
            self._sessions -= 1

    async def _authenticate(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Return whether the client wants the exit code. Raises SessionRefused if it does not prove itself."""
        if len(self._unauthenticated) >= MAX_UNAUTHENTICATED:
            oldest = next(iter(self._unauthenticated))  # a client that is slower than 64 others makes room
            del self._unauthenticated[oldest]
            oldest.cancel()
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # asyncio runs this method in a task
        self._unauthenticated[task] = None
        try:
            message = await _within(HELLO_SECONDS, _exchange_proofs(reader, writer, self._settings.token_file))
        finally:
            self._unauthenticated.pop(task, None)
        return message.get("exit") is True

    async def _run_session(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, wants_exit: bool
    ) -> None:
        try:
            server = await Server.start(self._command, self._environment)
        except OSError as error:
            raise SessionRefused(f"the server can't be started: {error}") from error
        process = server.process
        began = time.monotonic()
        log("session began", pid=process.pid)
        tail = Tail()
        assert process.stderr is not None  # noqa: S101  # it is a pipe
        errors = asyncio.ensure_future(_copy_errors(process.stderr, tail))
        try:
            _enable_keep_alive(writer)
            await _send(writer, {"ok": True})
            await _relay(reader, writer, server)
            if wants_exit and process.returncode is not None:
                await asyncio.wait({errors}, timeout=GRACE_SECONDS)
                await _send_exit(writer, process.returncode, tail.last_line())
        finally:
            # shielded: a cancellation must not leave processes behind
            await asyncio.shield(_end_process(server, errors))
            log("session ended", pid=process.pid, code=process.returncode, seconds=round(time.monotonic() - began, 3))


class _Streams(asyncio.subprocess.SubprocessStreamProtocol):
    """Streams of a process, and its end. `Process.wait` also waits for all who hold its pipes."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=CHUNK, loop=loop)
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        """Note the end of the process."""
        super().process_exited()
        self.exited.set()


@dataclass(frozen=True)
class Server:
    """A process of the stdio server. It may leave others behind, which hold its output open."""

    process: asyncio.subprocess.Process
    transport: asyncio.SubprocessTransport
    exited: asyncio.Event

    @classmethod
    async def start(cls, command: list[str], environment: Mapping[str, str]) -> Server:
        """Start a process. Raises OSError."""
        loop = asyncio.get_running_loop()
        transport, streams = await loop.subprocess_exec(
            lambda: _Streams(loop), *command, env=environment, start_new_session=True
        )
        return cls(asyncio.subprocess.Process(transport, streams, loop), transport, streams.exited)


class Tail:
    """The end of what a server writes to standard error."""

    def __init__(self) -> None:
        self._end = b""

    def add(self, chunk: bytes) -> None:
        """Add what was written."""
        self._end = (self._end + chunk)[-4 * TAIL_BYTES :]

    def last_line(self) -> str:
        """Return the last line that is not blank, without control characters; empty if there is none."""
        line = next((line for line in reversed(self._end.split(b"\n")) if line.strip()), b"")
        if len(line) > TAIL_BYTES:
            return "(its last line on standard error is too long to be shown)"
        text = line.decode("utf-8", "replace").strip()
        return "".join(character if character.isprintable() else " " for character in text)


async def _within(seconds: float, work: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    """Return the result of the work, which a cancellation ends. Raises SessionRefused if it takes too long."""
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    finally:
        task.cancel()
    if not done:
        raise SessionRefused(f"the client did not prove itself within {seconds:.0f} s")
    return task.result()


async def _exchange_proofs(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token_file: str
) -> dict[str, Any]:
    """Prove the bridge to the client, and return the client's line once it has proved itself. Raises SessionRefused."""
    request = await _read_line(reader)
    asked = REQUEST.fullmatch(request)
    if asked is None:
        raise SessionRefused("the first line must request a proof: the broker may be of an earlier release")
    size = 0
    while (line := await _read_line(reader)).strip():  # the rest of the head
        size += len(line)
        if size > HELLO_BYTES:
            raise SessionRefused("the head of the request is too long")
    digest, nonce, own_nonce = _read_digest(token_file), asked[1].decode(), secrets.token_hex(32)
    address = _normalize_address(writer.get_extra_info("peername")[0])
    proof = _sign(digest, PROOF_PURPOSE, nonce, address)
    body = json.dumps({"proof": proof, "address": address, "nonce": own_nonce}).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    try:
        message = json.loads(await _read_line(reader))
    except (ValueError, RecursionError):
        message = None
    covered = message.get("token") if isinstance(message, dict) else None
    if not isinstance(message, dict) or not isinstance(covered, str) or not HEXADECIMAL.fullmatch(covered):
        raise SessionRefused("the line after the proof must be a JSON object with token and version")
    mask = _sign(digest, RETURN_PURPOSE, nonce, own_nonce, address)
    token = f"{int(covered, 16) ^ int(mask, 16):064x}"
    if not hmac.compare_digest(hashlib.sha256(token.encode()).hexdigest(), digest):
        raise SessionRefused("the token is invalid")
    if message.get("version") != VERSION:
        raise SessionRefused(f"the version must be {VERSION}")
    return message


def _sign(digest: str, *parts: str) -> str:
    return hmac.new(digest.encode(), "\n".join(parts).encode(), hashlib.sha256).hexdigest()


def _normalize_address(address: str) -> str:
    """Return an IP address in its shortest form, an IPv4-mapped one as IPv4, and without a zone."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)


async def _read_line(reader: asyncio.StreamReader) -> bytes:
    try:
        line = await reader.readuntil(b"\n")
    except asyncio.LimitOverrunError as error:
        raise SessionRefused("a line before the session is too long") from error
    if len(line) > HELLO_BYTES:
        raise SessionRefused("a line before the session is too long")
    return line


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, server: Server) -> None:
    """Copy bytes both ways until the connection or the process ends."""
    process = server.process
    assert process.stdin is not None  # noqa: S101  # both are pipes
    assert process.stdout is not None  # noqa: S101
    incoming = asyncio.ensure_future(_copy_input(reader, process.stdin))
    outgoing = asyncio.ensure_future(_copy(process.stdout, writer))
    ended = asyncio.ensure_future(server.exited.wait())
    tasks: set[asyncio.Future[Any]] = {incoming, outgoing, ended}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if outgoing.done() and not incoming.done():
            # a process that exits closes its output first
            await asyncio.wait({ended, incoming}, timeout=GRACE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if ended.done() and not incoming.done():
            # its last output is still in the pipe, which a remaining child process may keep open
            await asyncio.wait({outgoing, incoming}, timeout=GRACE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _copy_input(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Copy until the client disconnects. What a process does not read any more is dropped."""
    with contextlib.suppress(OSError):
        await _copy(source, target)
        return
    while await source.read(CHUNK):
        pass


async def _copy_errors(source: asyncio.StreamReader, tail: Tail) -> None:
    """Copy a server's standard error to the bridge's, which may block, and keep its end."""
    loop = asyncio.get_running_loop()
    while chunk := await source.read(CHUNK):
        tail.add(chunk)
        await loop.run_in_executor(None, _write_errors, chunk)


def _write_errors(chunk: bytes) -> None:
    with contextlib.suppress(OSError):
        sys.stderr.buffer.write(chunk)
        sys.stderr.buffer.flush()


async def _send_exit(writer: asyncio.StreamWriter, code: int, line: str) -> None:
    """Send how the process ended, after a line break: its last output may be an incomplete line."""
    message = {"jsonrpc": "2.0", "method": "mcp-exec/exited", "params": {"code": code, "line": line}}
    with contextlib.suppress(OSError):
        writer.write(b"\n" + json.dumps(message).encode() + b"\n")
        await writer.drain()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while chunk := await source.read(CHUNK):
        target.write(chunk)
        await target.drain()


async def _send(writer: asyncio.StreamWriter, answer: dict[str, object]) -> None:
    writer.write(json.dumps(answer).encode() + b"\n")
    await writer.drain()


async def _end_process(server: Server, errors: asyncio.Future[None]) -> None:
    """End a process and its group, copy what it still wrote to standard error, and close its pipes."""
    await _kill(server)
    await asyncio.wait({errors}, timeout=GRACE_SECONDS)
    errors.cancel()
    server.transport.close()  # a process outside of the group may hold the other ends


async def _kill(server: Server) -> None:
    """End a process and its group: SIGTERM first, then SIGKILL."""
    process = server.process
    if process.stdin is not None:
        process.stdin.close()
    if not server.exited.is_set():
        _signal_group(process, signal.SIGTERM)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(server.exited.wait(), GRACE_SECONDS)
    _signal_group(process, signal.SIGKILL)
    await server.exited.wait()


def _signal_group(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _open_listener(port: int) -> socket.socket:
    """Open a listening socket, for IPv4 and IPv6 if the host supports both."""
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):
            return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


def _enable_keep_alive(writer: asyncio.StreamWriter) -> None:
    """Enable TCP keep-alive: a client that vanished is detected within two minutes, and its session ends."""
    connection = writer.get_extra_info("socket")
    options = {"TCP_NODELAY": 1, "TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in options.items():
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def reap_orphans() -> None:
    """Reap orphaned processes, as PID 1 of a container must. asyncio reaps its own children."""
    with contextlib.suppress(ChildProcessError):
        for entry in os.listdir("/proc"):
            if entry.isdecimal() and _is_orphan(int(entry)):
                os.waitpid(int(entry), os.WNOHANG)


def _is_orphan(pid: int) -> bool:
    """Return whether a zombie was left by a server; a server itself leads its process group."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            state, parent, group = file.read().rpartition(")")[2].split()[:3]
    except (OSError, ValueError):
        return False
    return state == "Z" and int(parent) == os.getpid() and int(group) != pid


async def serve(settings: Settings, command: list[str], environment: Mapping[str, str]) -> None:
    """Serve until SIGTERM or SIGINT."""
    bridge = Bridge(settings=settings, command=command, environment=environment)
    loop = asyncio.get_running_loop()
    stop_requested = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_requested.set)
    if os.getpid() == 1:
        loop.add_signal_handler(signal.SIGCHLD, reap_orphans)
    if await _has_digest(settings.token_file, stop_requested):
        log("ready", port=await bridge.start(), command=command[0], maxSessions=settings.max_sessions)
    await stop_requested.wait()
    await bridge.stop()
    log("stopped")


async def _has_digest(path: str, stop_requested: asyncio.Event) -> bool:
    """Wait for the first digest. Return False if the end was requested before."""
    waits = False
    while not stop_requested.is_set():
        try:
            _read_digest(path)
            return True
        except SessionRefused as error:
            if not waits:
                log("no digest yet", reason=str(error))
            waits = True
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(stop_requested.wait(), DIGEST_SECONDS)
    return False


def install(folder: str) -> None:
    """Copy this file atomically to `folder`/bridge.py."""
    os.makedirs(folder, exist_ok=True)
    target = os.path.join(folder, "bridge.py")
    shutil.copyfile(os.path.abspath(__file__), target + ".part")
    os.chmod(target + ".part", 0o555)  # noqa: S103  # another user runs it
    os.replace(target + ".part", target)


def install_authorities(folder: str, bundle: str) -> None:
    """Write this image's public authorities and those of a bundle to `folder`/ca.pem. Raises OSError."""
    with open(bundle, encoding="utf-8", errors="replace") as file:
        text = file.read(MAX_BUNDLE_BYTES)
    with contextlib.suppress(OSError), open(PUBLIC_AUTHORITIES, encoding="utf-8", errors="replace") as file:
        text = file.read() + "\n" + text
    with open(os.path.join(folder, "ca.pem"), "w", encoding="utf-8") as file:
        file.write(text)


def main(arguments: list[str] | None = None, environment: Mapping[str, str] = os.environ) -> int | str:
    """Run the command and return its exit code, or an error."""
    words = sys.argv[1:] if arguments is None else arguments
    # all words after -- are the server's command; argparse must not parse them
    dashes = words.index("--") if "--" in words else len(words)
    command = words[dashes + 1 :]
    parser = argparse.ArgumentParser(prog="bridge.py", description="Serves a stdio MCP server over TCP.")
    commands = parser.add_subparsers(dest="action", required=True)
    install_parser = commands.add_parser("install", help="copy this file to a folder")
    install_parser.add_argument("folder")
    install_parser.add_argument("--ca-bundle", help="file with certificates that the server trusts, too")
    install_parser.add_argument("--ca-bundle-of", default="", help="where that file comes from, for the error")
    commands.add_parser("serve", usage="bridge.py serve -- COMMAND...", help="accept connections")
    options = parser.parse_args(words[:dashes])
    if options.action == "install":
        install(options.folder)
        if options.ca_bundle:
            try:
                install_authorities(options.folder, options.ca_bundle)
            except OSError:
                return f"this namespace has no {options.ca_bundle_of}: create it, as the release's caBundle names it"
        return 0
    if not command:
        parser.error("serve needs the server's program and arguments after --")
    try:
        settings = Settings.from_environment(environment)
    except ValueError as error:
        parser.error(str(error))
    asyncio.run(serve(settings, command, environment))
    return 0


if __name__ == "__main__":
    sys.exit(main())
