"""The bridge as a process, with the real mcp-server-time and with misbehaving programs."""

import ast
import asyncio
import hashlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.support.pace import paced
from tests.support.until import until

from mcp_exec_common.peers import PeerNotProven, connect, demand_proof
from mcp_exec_common.supervisor.tokens import token_digest
from mcp_exec_servers import bridge

TOKEN = "5e" * 32
DIGEST = hashlib.sha256(TOKEN.encode()).hexdigest()
DEADLINE = paced(20)
TIME = [sys.executable, "-m", "mcp_server_time", "--local-timezone", "UTC"]
ECHO = [sys.executable, "-c", "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"]


@dataclass
class Session:
    """A connection with a process."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    _number: int = field(default=0)

    async def line(self) -> bytes:
        async with asyncio.timeout(DEADLINE):
            return await self.reader.readline()

    def send(self, message: dict[str, Any]) -> None:
        self.writer.write(json.dumps(message).encode() + b"\n")

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        self.send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        while (answer := json.loads(await self.line())).get("id") != self._number:
            pass
        return dict(answer["result"])


@dataclass
class Running:
    """A bridge that accepts connections."""

    process: asyncio.subprocess.Process
    port: int

    @asynccontextmanager
    async def connected(
        self, line: bytes | None = None, *, request: bytes | None = None, token: str = TOKEN
    ) -> AsyncIterator[Session]:
        """Connect as the broker with a token does, or with another request for a proof, or another line after it."""
        async with asyncio.timeout(DEADLINE):
            connection = await connect("127.0.0.1", self.port)
            if request is None:
                try:
                    proven = await demand_proof(connection, keys=[token_digest(token)])
                except BaseException:
                    connection.close()
                    raise
            if request is None and line is None:
                line = json.dumps({"token": proven.cover_token(token), "version": bridge.VERSION}).encode() + b"\n"
            reader, writer = await asyncio.open_connection(sock=connection)
            writer.write((request or b"") + (line or b""))
            try:
                yield Session(reader=reader, writer=writer)
            finally:
                writer.close()
                await asyncio.gather(writer.wait_closed(), return_exceptions=True)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        async with self.connected() as session:
            assert json.loads(await session.line()) == {"ok": True}
            yield session

    async def said(self, what: str) -> dict[str, Any]:
        """Return the next record of the log with that message."""
        assert self.process.stderr is not None
        async with asyncio.timeout(DEADLINE):
            while True:
                line = await self.process.stderr.readline()
                assert line, "the bridge is gone"
                if line.startswith(b"{") and (record := json.loads(line))["message"] == what:
                    return dict(record)


Start = Callable[..., Awaitable[Running]]


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    """The file with the digest of the token."""
    made = tmp_path / "sha256"
    made.write_text(DIGEST)
    return made


def write(file: Path, content: str | None) -> None:
    """Replace a file, as the kubelet does; None removes it."""
    file.unlink()
    if content is not None:
        file.write_text(content)


@pytest.fixture
async def start(token_file: Path) -> AsyncIterator[Start]:
    processes: list[asyncio.subprocess.Process] = []

    async def start(*command: str, **environment: str) -> Running:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, bridge.__file__, "serve", "--", *command), stderr=asyncio.subprocess.PIPE,
            env={
                "PATH": os.environ["PATH"], "MCP_EXEC_PORT": "0", "MCP_EXEC_TOKEN_FILE": str(token_file), **environment
            },
        )  # fmt: skip
        processes.append(process)
        running = Running(process=process, port=0)
        running.port = (await running.said("ready"))["port"]
        return running

    yield start
    for process in processes:
        if process.returncode is None:
            process.terminate()
        async with asyncio.timeout(DEADLINE):
            await process.communicate()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


async def gone(pid: int) -> None:
    """Wait until a process has ended."""
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(watched, ended.set)
    async with asyncio.timeout(DEADLINE):
        await ended.wait()
    asyncio.get_running_loop().remove_reader(watched)
    os.close(watched)


async def test_a_real_server_is_initialized_listed_and_called_over_the_bridge(start: Start) -> None:
    running = await start(*TIME)
    async with running.session() as session:
        client = {"name": "test", "version": "1"}
        hello = await session.ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=client)
        assert hello["serverInfo"]["name"] == "mcp-time"
        session.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert [tool["name"] for tool in (await session.ask("tools/list"))["tools"]] == [
            "get_current_time",
            "convert_time",
        ]
        arguments = {"source_timezone": "Europe/Berlin", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        answer = await session.ask("tools/call", name="convert_time", arguments=arguments)
        assert json.loads(answer["content"][0]["text"])["target"]["timezone"] == "Asia/Tokyo"


async def test_bytes_travel_unchanged_and_each_connection_has_a_process_of_its_own(start: Start) -> None:
    running = await start(sys.executable, "-c", "import os; print(os.getpid(), flush=True); " + ECHO[2])
    async with running.session() as one, running.session() as two:
        assert await one.line() != await two.line()
        large = b'"' + "ü\U0001f986".encode() * 200_000 + b'"\n'
        two.writer.write(large)
        one.writer.write(b'{"a": 1}\n')
        assert await one.line() == b'{"a": 1}\n'
        async with asyncio.timeout(DEADLINE):
            assert await two.reader.readexactly(len(large)) == large


NO_PROOF = "the first line must request a proof: the broker may be of an earlier release"
NO_TOKEN = "the line after the proof must be a JSON object with token and version"
TOO_LONG = "a line before the session is too long"


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (json.dumps({"token": TOKEN, "version": 1}).encode() + b"\n", NO_PROOF),
        (b"GET / HTTP/1.1\r\n", NO_PROOF),
        (b"GET /v1/proof?nonce=" + b"A" * 64 + b" HTTP/1.1\r\n", NO_PROOF),
        (b"[" * 4000 + b"\n", NO_PROOF),
        (b"x" * 5000 + b"\n", TOO_LONG),
        (b"x" * 200_000, TOO_LONG),
        (
            b"GET /v1/proof?nonce=" + b"a" * 64 + b" HTTP/1.1\r\n" + b"A: b\r\n" * 1000,
            "the head of the request is too long",
        ),
    ],
)
async def test_a_connection_that_requests_no_proof_gets_a_reason_and_no_process(
    start: Start, request_: bytes, reason: str
) -> None:
    running = await start(*ECHO)
    async with running.connected(request=request_) as session:
        assert json.loads(await session.line()) == {"error": reason}
        assert await session.line() == b""
    assert (await running.said("refused a connection"))["reason"] == reason


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (json.dumps({"token": DIGEST, "version": 2}).encode() + b"\n", "the token is invalid"),
        (json.dumps({"token": TOKEN, "version": 2}).encode() + b"\n", "the token is invalid"),
        (b'{"token": "\\ud800", "version": 2}\n', NO_TOKEN),
        (b'{"token": "0x1", "version": 2}\n', NO_TOKEN),
        (b"[1]\n", NO_TOKEN),
        (b"[" * 4000 + b"\n", NO_TOKEN),
        (b'{"token": "' + b"x" * 5000 + b'"}\n', TOO_LONG),
    ],
)
async def test_a_client_that_does_not_prove_itself_gets_a_reason_and_no_process(
    start: Start, line: bytes, reason: str
) -> None:
    """Whoever reads the pod knows the digest, and so gets the bridge's proof."""
    running = await start(*ECHO)
    async with running.connected(line) as session:
        assert json.loads(await session.line()) == {"error": reason}
        assert await session.line() == b""
    assert (await running.said("refused a connection"))["reason"] == reason


async def test_a_client_of_another_version_gets_a_reason(start: Start) -> None:
    running = await start(*ECHO)
    async with asyncio.timeout(DEADLINE):
        connection = await connect("127.0.0.1", running.port)
        proven = await demand_proof(connection, keys=[DIGEST])
        reader, writer = await asyncio.open_connection(sock=connection)
        writer.write(json.dumps({"token": proven.cover_token(TOKEN), "version": 3}).encode() + b"\n")
        assert json.loads(await reader.readline()) == {"error": "the version must be 2"}
        writer.close()


async def test_a_bridge_with_another_digest_is_not_proven(start: Start, token_file: Path) -> None:
    running = await start(*ECHO)
    write(token_file, hashlib.sha256(b"another").hexdigest())
    with pytest.raises(PeerNotProven, match="wrong proof"):
        async with running.connected():
            pass


async def test_a_program_that_can_not_be_started_is_reported(start: Start) -> None:
    running = await start("/nowhere/server")
    async with running.connected() as session:
        answer = json.loads(await session.line())
    assert answer["error"].startswith("the server can't be started: ")


async def test_no_more_sessions_than_allowed_and_a_place_comes_free_again(start: Start) -> None:
    running = await start(*ECHO, MCP_EXEC_MAX_SESSIONS="1")
    async with running.session(), running.connected() as second:
        assert json.loads(await second.line()) == {"error": "the limit of 1 sessions is reached"}
    await running.said("session ended")
    async with running.session() as third:
        third.writer.write(b"again\n")
        assert await third.line() == b"again\n"


FAMILY = """
import os, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.signal(15, signal.SIG_IGN); signal.pause()"])
print(os.getpid(), child.pid, flush=True)
signal.pause()
"""


async def test_a_closed_connection_ends_the_whole_process_group_even_one_that_does_not_want_to(start: Start) -> None:
    running = await start(sys.executable, "-c", FAMILY)
    async with running.session() as session:
        pids = [int(pid) for pid in (await session.line()).split()]
        assert all(alive(pid) for pid in pids)
    assert (await running.said("session ended"))["code"] == -signal.SIGKILL
    assert not alive(pids[0])
    await gone(pids[1])


DAEMON = """
import os, signal, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True)
print(child.pid, flush=True)
if sys.argv[1] == "stays":
    signal.pause()
"""


@pytest.mark.parametrize("server", ["exits", "stays"])
async def test_a_daemon_that_keeps_the_servers_output_keeps_no_session(start: Start, server: str) -> None:
    running = await start(sys.executable, "-c", DAEMON, server, MCP_EXEC_MAX_SESSIONS="1")
    daemons: list[int] = []
    folder = f"/proc/{running.process.pid}/fd"
    before = len(os.listdir(folder))
    try:
        for _ in range(2):
            async with running.session() as session:
                daemons.append(int(await session.line()))
                if server == "exits":
                    assert await session.line() == b""
            await running.said("session ended")
        # asyncio closes its end of the connection after that, and keeps one descriptor to watch processes
        await until(lambda: len(os.listdir(folder)) <= before + 1, what="no session leaves descriptors behind")
    finally:
        for daemon in daemons:
            os.kill(daemon, signal.SIGKILL)


async def test_the_end_of_the_process_closes_the_connection_after_its_last_words(start: Start) -> None:
    running = await start(sys.executable, "-c", "print('last words', flush=True); raise SystemExit(3)")
    async with running.session() as session:
        assert await session.line() == b"last words\n"
        assert await session.line() == b""
    assert (await running.said("session ended"))["code"] == 3


async def test_the_end_of_the_bridge_ends_its_sessions(start: Start) -> None:
    running = await start(sys.executable, "-c", "import os; print(os.getpid(), flush=True); " + ECHO[2])
    async with running.session() as session:
        pid = int(await session.line())
        running.process.terminate()
        assert await session.line() == b""
        await running.said("stopped")
    assert not alive(pid)


async def test_the_server_sees_its_environment_and_nothing_of_the_bridge(start: Start) -> None:
    show = "import json, os; print(json.dumps(dict(os.environ)), flush=True)"
    running = await start(sys.executable, "-c", show, API_KEY="dummy")
    async with running.session() as session:
        environment = json.loads(await session.line())
    assert environment["API_KEY"] == "dummy"
    assert not [name for name in environment if name.startswith("MCP_EXEC_")]


async def test_another_digest_holds_for_new_clients_and_ends_no_session(start: Start, token_file: Path) -> None:
    running = await start(*ECHO)
    async with running.session() as session:
        write(token_file, token_digest("ab" * 32) + "\n")
        with pytest.raises(PeerNotProven):
            async with running.connected():
                pass
        async with running.connected(token="ab" * 32) as other:
            assert json.loads(await other.line()) == {"ok": True}
        session.send({"still": "here"})
        assert json.loads(await session.line()) == {"still": "here"}


@pytest.mark.parametrize("content", [None, "", "short", "A" * 64, "0" * 63 + "\u00e9"])
async def test_without_a_digest_nobody_gets_a_session(start: Start, token_file: Path, content: str | None) -> None:
    running = await start(*ECHO)
    write(token_file, content)
    request = b"GET /v1/proof?nonce=" + b"a" * 64 + b" HTTP/1.1\r\n\r\n"
    async with running.connected(request=request) as session:
        assert "the digest of the token" in json.loads(await session.line())["error"]


async def test_the_bridge_listens_once_the_operator_has_written_the_digest(token_file: Path) -> None:
    write(token_file, "")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, bridge.__file__, "serve", "--", *ECHO),
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "MCP_EXEC_PORT": "0", "MCP_EXEC_TOKEN_FILE": str(token_file)},
    )
    running = Running(process=process, port=0)
    try:
        await running.said("no digest yet")
        write(token_file, DIGEST)
        running.port = (await running.said("ready"))["port"]
        async with running.session():
            pass
    finally:
        process.terminate()
        await process.communicate()


async def test_a_probe_that_connects_and_leaves_is_no_event(start: Start) -> None:
    running = await start(*ECHO)
    async with running.connected(request=b""):
        pass
    async with running.session():
        pass
    assert running.process.stderr is not None
    assert json.loads(await running.process.stderr.readline())["message"] == "session began"


def test_install_copies_one_file_that_others_may_run(tmp_path: Path) -> None:
    for _ in range(2):
        assert bridge.main(["install", str(tmp_path / "new")]) == 0
    copy = tmp_path / "new" / "bridge.py"
    assert [path.name for path in copy.parent.iterdir()] == ["bridge.py"]
    assert copy.read_text() == Path(bridge.__file__).read_text()
    assert copy.stat().st_mode & 0o777 == 0o555


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({}, "MCP_EXEC_TOKEN_FILE"),
        ({"MCP_EXEC_TOKEN_FILE": "sha256", "MCP_EXEC_MAX_SESSIONS": "0"}, "MCP_EXEC_MAX_SESSIONS"),
        ({"MCP_EXEC_TOKEN_FILE": "sha256", "MCP_EXEC_PORT": "http"}, "MCP_EXEC_PORT"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(
    environment: dict[str, str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        bridge.main(["serve", "--", "true"], environment)
    assert named in capsys.readouterr().err


def test_a_command_must_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bridge.main(["serve"], {"MCP_EXEC_TOKEN_FILE": "sha256"})
    assert "after --" in capsys.readouterr().err


def test_it_needs_python_3_9_and_the_standard_library_alone() -> None:
    tree = ast.parse(Path(bridge.__file__).read_text(), feature_version=(3, 9))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {name for node in imports for name in ([node.module] if isinstance(node, ast.ImportFrom) else
               [alias.name for alias in node.names])}  # fmt: skip
    assert {str(module).split(".")[0] for module in modules} <= sys.stdlib_module_names


async def test_a_client_is_served_while_silent_ones_take_all_places(start: Start) -> None:
    running = await start(*ECHO)
    async with AsyncExitStack() as stack:
        silent = [
            await stack.enter_async_context(running.connected(request=b"")) for _ in range(bridge.MAX_UNAUTHENTICATED)
        ]
        async with running.session() as session:
            session.send({"text": 1})
            assert json.loads(await session.line()) == {"text": 1}
        assert await silent[0].line() == b""  # the one that has waited longest has made room
