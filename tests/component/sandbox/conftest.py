"""A real supervisor per test, on loopback, with folders of its own and (as root) a user of its own."""

import compileall
import contextlib
import hashlib
import json
import os
import random
import select
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.broker_calls import FakeBrokerCalls
from tests.support.pace import paced

TOKEN = "a-token-of-this-test"
SECONDS = paced(20)
MIB = 1024 * 1024
SANDBOX_IMAGE = Path(__file__).parents[3] / "sandbox_image"
TOOLS = Path(__file__).parents[3] / "tools"
SESSION_VARIABLE = f"TEST_SESSION={uuid.uuid4()}"
"""In the environment of every process that this session starts, so that left-over processes are found."""


MEASUREMENT = {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")}
"""Variables of the coverage measurement, if there is one. A process that is killed loses its data."""
if MEASUREMENT:  # supervisors have users of their own
    DATA = SANDBOX_IMAGE.parent / "build" / "coverage"
    DATA.mkdir(parents=True, exist_ok=True)
    DATA.chmod(0o777)


class SandboxProcess:
    """A supervisor that was started as a process, and a client for it."""

    def __init__(
        self, *, wrapper: tuple[str, ...] = (), program: tuple[str, ...] = ("-m", "mcp_exec_sandbox"), **settings: str
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="mcp-exec-test-"))
        self.workspace, self.temporary = self.folder / "workspace", self.folder / "tmp"
        self.uid = random.SystemRandom().randrange(1_000_000, 2_000_000_000) if os.getuid() == 0 else None
        self.folder.chmod(0o755)
        for folder in (self.workspace, self.temporary):
            folder.mkdir()
            if self.uid is not None:
                os.chown(folder, self.uid, self.uid)
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(map(str, (SANDBOX_IMAGE, TOOLS))),
            "TEST_SESSION": SESSION_VARIABLE.partition("=")[2],
            "KUBERNETES_SERVICE_HOST": "192.0.2.1",
            "MCP_EXEC_TOKEN_SHA256": hashlib.sha256(TOKEN.encode()).hexdigest(),
            "MCP_EXEC_PORT": "0",
            "MCP_EXEC_HOST": "127.0.0.1",
            "MCP_EXEC_WORKSPACE": str(self.workspace),
            "MCP_EXEC_TMP": str(self.temporary),
            "MCP_EXEC_MAX_PROCESSES": str(64 + (0 if self.uid else 4096)),
            **{name: os.environ[name] for name in ("PYTHON_CPU_COUNT",) if name in os.environ},
            **MEASUREMENT,
        }
        environment |= {f"MCP_EXEC_{name.upper()}": value for name, value in settings.items()}
        command = [*wrapper, *as_user(self.uid), sys.executable, "-P", *program]
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/"
        )
        self._client: httpx.Client | None = None
        self.ready: dict[str, Any] = {}
        """The line of the log that says that it is ready."""

    @property
    def client(self) -> httpx.Client:
        """A client that shows the token; waits for the ready line first."""
        if self._client is None:
            assert self.process.stdout is not None
            readable, _, _ = select.select([self.process.stdout], [], [], SECONDS)
            assert readable, "the supervisor did not become ready"
            ready = json.loads(self.process.stdout.readline())
            assert ready["message"] == "ready", ready
            self.ready = ready
            headers = {"authorization": f"Bearer {TOKEN}"}
            url = f"http://127.0.0.1:{ready['port']}"
            self._client = httpx.Client(base_url=url, headers=headers, timeout=SECONDS, trust_env=False)
        return self._client

    def start(self, code: str, **fields: Any) -> httpx.Response:
        """Post an execution and return the open stream."""
        body = {"id": "uid-1", "code": code, "context": {}, "timeoutSeconds": 15, "outputBytes": 65536, **fields}
        request = self.client.build_request("POST", "/v1/execution", json=body)
        return self.client.send(request, stream=True)

    def run(self, code: str, **fields: Any) -> "Run":
        """Run code to its end."""
        response = self.start(code, **fields)
        assert response.status_code == 200, response.read()
        return Run(events=[json.loads(line) for line in response.iter_lines()])

    def close(self) -> None:
        """Kill the supervisor, and all that runs as its user."""
        if self._client is not None:
            self._client.close()
        if self.uid is None or MEASUREMENT:
            # The supervisor kills its runner. Killed, it would leave a runner that it has stopped and not yet killed.
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(SECONDS)
        self.process.kill()
        self.process.wait(SECONDS)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        if self.uid is not None:
            kill_user(self.uid)
        shutil.rmtree(self.folder, ignore_errors=True)


class Run:
    """The events of a finished run."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        self.events = events
        self.end = events[-1]
        self.phase, self.reason, self.error = self.end["phase"], self.end["reason"], self.end["error"]
        self.stdout, self.stderr = self._text("stdout"), self._text("stderr")
        results = [event for event in events if event["type"] == "result"]
        self.has_result = bool(results)
        self.result = results[0]["value"] if results else None
        self.result_truncated = results[0]["truncated"] if results else False

    def _text(self, kind: str) -> str:
        return "".join(event["text"] for event in self.events if event["type"] == kind)


def as_user(uid: int | None) -> list[str]:
    """A command prefix that gives up root for a user without rights, except to reach Python wherever it is."""
    if uid is None:
        return []
    right = "+dac_read_search"
    user = [f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--no-new-privs"]
    return [
        "setpriv",
        *user,
        f"--inh-caps=-all,{right}",
        f"--ambient-caps=-all,{right}",
        f"--bounding-set=-all,{right}",
    ]


def kill_user(uid: int) -> None:
    """End every process of a user that only this test has; a process of that user does it, so that none escapes."""
    command = [*as_user(uid), "sh", "-c", "kill -9 -1"]
    subprocess.run(command, check=False, timeout=SECONDS, capture_output=True)


def list_session_processes() -> list[str]:
    """Return the command lines of living processes that this session started, directly or not."""
    left = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and SESSION_VARIABLE.encode() in (folder / "environ").read_bytes().split(b"\0"):
                left.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
    return left


class Spares:
    """Sandboxes with the usual settings, started ahead as in a pool: a test need not wait for Python to start."""

    def __init__(self) -> None:
        self._waiting = [SandboxProcess()]

    def take(self) -> SandboxProcess:
        self._waiting.append(SandboxProcess())
        return self._waiting.pop(0)

    def close(self) -> None:
        for sandbox in self._waiting:
            sandbox.close()


@pytest.fixture(scope="session", autouse=True)
def compiled() -> None:
    """Compile the modules once, as an image does. Users of the tests can not write bytecode, so each start would."""
    for package in (SANDBOX_IMAGE / "mcp_exec_sandbox", TOOLS / "mcp_exec_tools"):
        compileall.compile_dir(package, quiet=2)


@pytest.fixture(scope="session")
def spares() -> Iterator[Spares]:
    spares = Spares()
    yield spares
    spares.close()


@pytest.fixture(scope="session", autouse=True)
def no_process_is_left() -> Iterator[None]:
    """Check at the end of the session that no process of its sandboxes, runner or child, is left."""
    yield
    left = list_session_processes()
    assert not left, left


@pytest.fixture
def sandbox(spares: Spares) -> Iterator[SandboxProcess]:
    """A ready sandbox with the usual settings."""
    sandbox = spares.take()
    yield sandbox
    sandbox.close()


class ReusedSandbox:
    """A sandbox that runs code of one owner again and again; another one if it could not be cleaned."""

    run = SandboxProcess.run

    def __init__(self, take: Callable[[], SandboxProcess]) -> None:
        self._take = take
        self._sandbox = take()
        self._runs = 0
        self._last = ""

    @property
    def workspace(self) -> Path:
        return self._sandbox.workspace

    @property
    def client(self) -> httpx.Client:
        return self._sandbox.client

    def clean(self) -> None:
        """Clean the sandbox after the last run, so that it is idle."""
        if self._last and self.client.post("/v1/recycle", json={"id": self._last}).status_code != 200:
            self.close()
            self._sandbox = self._take()
        self._last = ""

    def start(self, code: str, **fields: Any) -> httpx.Response:
        """Clean the sandbox after the last run, post an execution and return the open stream."""
        self.clean()
        self._runs += 1
        body = {"id": f"uid-{self._runs}", "owner": "0" * 32, **fields}
        self._last = body["id"]
        return self._sandbox.start(code, **body)

    def close(self) -> None:
        self._sandbox.close()


@pytest.fixture(scope="module")
def reused(spares: Spares) -> Iterator[ReusedSandbox]:
    """A sandbox for all tests of a module that only run code."""
    reused = ReusedSandbox(spares.take)
    yield reused
    reused.close()


@pytest.fixture(scope="module")
def typescript() -> Iterator[ReusedSandbox]:
    """A sandbox for TypeScript, for all tests of a module that only run code."""
    reused = ReusedSandbox(lambda: SandboxProcess(language="typescript"))
    yield reused
    reused.close()


@pytest.fixture(scope="module")
def shared(spares: Spares) -> Iterator[SandboxProcess]:
    sandbox = spares.take()
    yield sandbox
    sandbox.close()


@pytest.fixture
def idle(shared: SandboxProcess) -> Iterator[SandboxProcess]:
    """A sandbox for all tests of a module whose requests make no run; each of them leaves it idle."""
    yield shared
    assert shared.client.get("/v1/execution").json() == {"state": "idle", "id": None, "lastSeq": 0, "uses": 0}


@pytest.fixture
def make_sandbox() -> Iterator[Any]:
    """Makes sandboxes with settings of the test's choice."""
    made: list[SandboxProcess] = []

    def make(**settings: Any) -> SandboxProcess:
        made.append(SandboxProcess(**settings))
        return made[-1]

    yield make
    for sandbox in made:
        sandbox.close()


@pytest.fixture
def broker() -> Iterator[FakeBrokerCalls]:
    """A broker that returns the arguments of each call, unless the test sets another answer."""
    broker = FakeBrokerCalls()
    yield broker
    broker.close()
