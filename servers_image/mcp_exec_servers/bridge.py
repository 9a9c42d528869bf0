"""Serves an MCP server that speaks over standard input and output to whoever has its token, over TCP.

    bridge.py install FOLDER          copies this file there
    bridge.py serve -- COMMAND...     takes connections; each is a session with a process of its own

A connection begins with one line, `{"token": "..", "version": 1}`. The answer is `{"ok": true}`, or `{"error": ".."}`
and its end; after it, bytes go both ways as on the server's standard input and output. What the server writes to
standard error goes to this process's. Either side's end is the other's: when the connection closes, the process group
is ended, and when the process ends, the connection is.

This file is copied into images of others: it needs Python 3.9 and nothing else. It reads MCP_EXEC_TOKEN_SHA256 (the
token's digest; the token itself never is in the pod), MCP_EXEC_MAX_SESSIONS and MCP_EXEC_PORT; the server gets the
rest of the environment.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import hmac
import json
import os
import re
import shutil
import signal
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

VERSION = 1
DEFAULT_PORT = 8083
GREETING_SECONDS = 10.0
"""Seconds in which a connection must say who it is."""
GREETING_BYTES = 4096
MAX_STRANGERS = 64
"""Connections that have not yet said who they are."""
GRACE_SECONDS = 2.0
"""Seconds between asking a server to end and ending it."""
CHUNK = 65536


@dataclass(frozen=True)
class Settings:
    """What the environment says."""

    token_sha256: str
    """Hex digest of the token that connections show."""
    max_sessions: int = 16
    """Processes at once."""
    port: int = DEFAULT_PORT
    """Where connections are taken; 0 takes a free port."""

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Settings:
        """The settings; ValueError names a variable that is missing or wrong."""
        digest = environment.get("MCP_EXEC_TOKEN_SHA256", "")
        if not re.fullmatch(r"[0-9a-f]{64}", digest):
            raise ValueError("MCP_EXEC_TOKEN_SHA256 must be 64 hexadecimal digits")
        return cls(
            token_sha256=digest,
            max_sessions=_number(environment, "MCP_EXEC_MAX_SESSIONS", 16, 1, 4096),
            port=_number(environment, "MCP_EXEC_PORT", DEFAULT_PORT, 0, 65535),
        )


def _number(environment: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    text = environment.get(name, str(default))
    if not text.isdecimal() or not least <= int(text) <= most:
        raise ValueError(f"{name} must be a number from {least} to {most}")
    return int(text)


class Refused(Exception):
    """A connection gets no session, for a reason that it is told."""


def log(message: str, **fields: object) -> None:
    """One JSON line on standard error."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    sys.stderr.write(json.dumps({"at": at, "logger": "bridge", "message": message, **fields}) + "\n")
    sys.stderr.flush()


class Bridge:
    """Gives each connection that shows the token a process of the server."""

    def __init__(self, *, settings: Settings, command: list[str], environment: Mapping[str, str]) -> None:
        self._settings = settings
        self._command = command
        self._environment = {name: value for name, value in environment.items() if not name.startswith("MCP_EXEC_")}
        self._strangers = 0
        self._sessions = 0
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.AbstractServer | None = None

    async def start(self) -> int:
        """Takes connections from now on; returns the port."""
        listener = _listener(self._settings.port)
        self._server = await asyncio.start_server(self._connected, sock=listener, limit=CHUNK)
        return int(listener.getsockname()[1])

    async def stop(self) -> None:
        """Takes no more connections and ends all sessions."""
        if self._server is not None:
            self._server.close()
        connections = list(self._connections)
        for task in connections:
            task.cancel()
        if connections:
            await asyncio.wait(connections, timeout=2 * GRACE_SECONDS)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # asyncio runs this as one
        self._connections.add(task)
        try:
            await self._converse(reader, writer)
        except Refused as refusal:
            log("refused a connection", reason=str(refusal))
            with contextlib.suppress(OSError):
                await _say(writer, {"error": str(refusal)})
        except (OSError, EOFError):
            pass  # it went away, as a probe of the port does
        except asyncio.CancelledError:
            pass  # `stop` did it; a cancelled handler would be reported as a failure
        finally:
            self._connections.discard(task)
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._admit(reader)
        if self._sessions >= self._settings.max_sessions:
            raise Refused(f"{self._sessions} sessions are open, and no more may be")
        self._sessions += 1
        try:
            await self._session(reader, writer)
        finally:
            self._sessions -= 1

    async def _admit(self, reader: asyncio.StreamReader) -> None:
        """Reads the first line; Refused unless it shows the token."""
        if self._strangers >= MAX_STRANGERS:
            raise Refused("too many connections have not said who they are")
        self._strangers += 1
        try:
            greeting = await _first_line(reader)
        finally:
            self._strangers -= 1
        try:
            said = json.loads(greeting)
        except ValueError:
            said = None
        if not isinstance(said, dict) or not isinstance(said.get("token"), str):
            raise Refused("the first line must be a JSON object with token and version")
        digest = hashlib.sha256(said["token"].encode("utf-8", "surrogatepass")).hexdigest()
        if not hmac.compare_digest(digest, self._settings.token_sha256):
            raise Refused("the token is not this server's")
        if said.get("version") != VERSION:
            raise Refused(f"this bridge speaks version {VERSION} alone")

    async def _session(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=CHUNK,
                env=self._environment, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise Refused(f"the server can't be started: {error}") from error
        began = time.monotonic()
        log("session began", pid=process.pid)
        try:
            _keep_alive(writer)
            await _say(writer, {"ok": True})
            await _until_an_end(reader, writer, process)
        finally:
            # shielded: a stop must not leave processes behind
            await asyncio.shield(_end(process))
            log("session ended", pid=process.pid, code=process.returncode, seconds=round(time.monotonic() - began, 3))


async def _first_line(reader: asyncio.StreamReader) -> bytes:
    line = asyncio.ensure_future(reader.readuntil(b"\n"))
    done, _ = await asyncio.wait({line}, timeout=GREETING_SECONDS)
    if not done:
        line.cancel()
        raise Refused(f"nothing was said in {GREETING_SECONDS:.0f} s")
    try:
        greeting = line.result()
    except asyncio.LimitOverrunError as error:
        raise Refused("the first line is too long") from error
    if len(greeting) > GREETING_BYTES:
        raise Refused("the first line is too long")
    return greeting


async def _until_an_end(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, process: asyncio.subprocess.Process
) -> None:
    """Carries bytes both ways until the connection or the process ends."""
    assert process.stdin is not None  # noqa: S101  # both are pipes
    assert process.stdout is not None  # noqa: S101
    incoming = asyncio.ensure_future(_carry(reader, process.stdin))
    outgoing = asyncio.ensure_future(_carry(process.stdout, writer))
    ended = asyncio.ensure_future(process.wait())
    tasks = {incoming, outgoing, ended}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if ended.done() and not incoming.done():
            # what it said last is still on its way; a process that it left behind may hold the pipe
            await asyncio.wait({outgoing, incoming}, timeout=GRACE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while chunk := await source.read(CHUNK):
        target.write(chunk)
        await target.drain()


async def _say(writer: asyncio.StreamWriter, answer: dict[str, object]) -> None:
    writer.write(json.dumps(answer).encode() + b"\n")
    await writer.drain()


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ends a process and all of its group: asked first, then forced."""
    if process.stdin is not None:
        process.stdin.close()
    if process.returncode is None:
        _signal_group(process, signal.SIGTERM)
        await asyncio.wait({asyncio.ensure_future(process.wait())}, timeout=GRACE_SECONDS)
    _signal_group(process, signal.SIGKILL)
    await process.wait()


def _signal_group(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _listener(port: int) -> socket.socket:
    """A listening socket, of both families where the machine has both."""
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):
            return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    """A peer that vanished without a word is noticed within two minutes, and its session freed."""
    connection = writer.get_extra_info("socket")
    options = {"TCP_NODELAY": 1, "TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in options.items():
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def reap_orphans() -> None:
    """As a container's first process: collects processes that lost their parents. asyncio collects its own."""
    with contextlib.suppress(ChildProcessError):
        for entry in os.listdir("/proc"):
            if entry.isdecimal() and _is_orphan(int(entry)):
                os.waitpid(int(entry), os.WNOHANG)


def _is_orphan(pid: int) -> bool:
    """Whether a dead child was left by a server: a server itself leads its group."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            state, parent, group = file.read().rpartition(")")[2].split()[:3]
    except (OSError, ValueError):
        return False
    return state == "Z" and int(parent) == os.getpid() and int(group) != pid


async def serve(settings: Settings, command: list[str], environment: Mapping[str, str]) -> None:
    """Serves until the process is asked to end."""
    bridge = Bridge(settings=settings, command=command, environment=environment)
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked.set)
    if os.getpid() == 1:
        loop.add_signal_handler(signal.SIGCHLD, reap_orphans)
    log("ready", port=await bridge.start(), command=command[0], maxSessions=settings.max_sessions)
    await asked.wait()
    await bridge.stop()
    log("stopped")


def install(folder: str) -> None:
    """Copies this file to `folder`/bridge.py, whole or not at all."""
    os.makedirs(folder, exist_ok=True)
    target = os.path.join(folder, "bridge.py")
    shutil.copyfile(os.path.abspath(__file__), target + ".part")
    os.chmod(target + ".part", 0o555)  # noqa: S103  # another user runs it
    os.replace(target + ".part", target)


def main(arguments: list[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """The command; returns its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    # what stands after the dashes is the server's, dashes and all: argparse has no part in it
    dashes = given.index("--") if "--" in given else len(given)
    command = given[dashes + 1 :]
    parser = argparse.ArgumentParser(prog="bridge.py", description="Serves a stdio MCP server over TCP.")
    commands = parser.add_subparsers(dest="action", required=True)
    installing = commands.add_parser("install", help="copies this file to a folder")
    installing.add_argument("folder")
    commands.add_parser("serve", usage="bridge.py serve -- COMMAND...", help="takes connections; each has a process")
    chosen = parser.parse_args(given[:dashes])
    if chosen.action == "install":
        install(chosen.folder)
        return 0
    if not command:
        parser.error("serve needs the server's program and arguments, after --")
    try:
        settings = Settings.read(environment)
    except ValueError as error:
        parser.error(str(error))
    asyncio.run(serve(settings, command, environment))
    return 0


if __name__ == "__main__":
    sys.exit(main())
