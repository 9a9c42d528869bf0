"""`kubectl mcp-exec` if nobody answers: namespaces that are not served, operators and servers that are away."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.component.gateway.commands import Command, call
from tests.component.gateway.conftest import CEX, SBP
from tests.component.gateway.test_kubectl_plugin import DONE, at_creation
from tests.support.api_server import FakeApiServer, Fault
from tests.support.processes import SECONDS, write_kubeconfig
from tests.support.until import until

from mcp_exec_client.cli import follower
from mcp_exec_client.cli.main import kubectl_main

SILENT = {"reason": "NotObserved"}
ALL_POOLS = "/apis/mcp-exec.dev/v1beta1/sandboxpools"


def pool(namespace: str, reason: str) -> dict[str, Any]:
    status = {"conditions": [{"type": "Ready", "status": "Unknown", "reason": reason}]}
    return {"metadata": {"name": f"default-{namespace}", "namespace": namespace}, "status": status}


@pytest.fixture
async def command(
    api: FakeApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    """Run commands in the namespace `agents` with short waits for an operator, which is not there."""
    monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(tmp_path / "kubeconfig", api.url)))
    for name, seconds in (("_NOTE_SECONDS", 0.05), ("_CHECK_SECONDS", 0.5), ("_MAX_SECONDS", 1.0)):
        monkeypatch.setattr(follower, name, seconds)
    at_creation(api, SILENT)
    for served in ("team-b", "team-a"):
        api.put(ALL_POOLS, pool(served, "Ready"))
    api.put(ALL_POOLS, pool("agents", "NotObserved"))
    return lambda *words: call(capsys, *words, "-n", "agents", entry=kubectl_main)


def serve(api: FakeApiServer) -> None:
    api.put(SBP, pool("agents", "Ready"))


@pytest.mark.parametrize("detached", [(), ("--detach",)])
async def test_a_namespace_that_is_not_served_is_an_error_and_leaves_no_execution(
    api: FakeApiServer, command: Command, detached: tuple[str, ...]
) -> None:
    ended = await command("run", "-c", "1", "--name", "mine", *detached)
    assert (ended.code, ended.out) == (3, "")
    assert ended.err.splitlines() == [
        "mine waits: no operator has observed it yet",
        "kubectl mcp-exec: namespace agents is not served by mcp-exec (served: team-a, team-b); use -n; "
        "mine is deleted",
    ]
    assert api.collections[CEX] == {}


async def test_who_may_not_list_pools_is_told_what_is_known(api: FakeApiServer, command: Command) -> None:
    api.faults.append(Fault("GET", ALL_POOLS, 403))
    ended = await command("run", "-c", "1")
    assert (ended.code, "namespace agents is not served by mcp-exec; use -n with a name" in ended.last) == (3, True)
    api.faults += [Fault("GET", SBP, 403), Fault("DELETE", "/mine", 403, message="you may not")]
    unknown = await command("run", "-c", "1", "--name", "mine")
    assert (unknown.code, unknown.last) == (
        4,
        "kubectl mcp-exec: no operator has observed mine within 1 s: check that the operator runs; mine stays, and "
        "would run if an operator observed it: the API server refused the request: you may not",
    )
    assert api.collections[CEX]["mine"]["spec"]["cancelRequested"]


async def test_an_operator_that_is_late_is_waited_for(api: FakeApiServer, command: Command) -> None:
    serve(api)
    running = asyncio.create_task(command("run", "-c", "1", "--name", "mine"))
    await api.until_asked(lambda: api.asked("GET", "/sandboxpools"))
    api.merge(CEX, "mine", {"status": DONE})
    ended = await running
    assert (ended.code, ended.out) == (0, "1\n2\n")
    assert ended.err.splitlines() == ["mine waits: no operator has observed it yet", "e"]


async def test_an_operator_that_is_away_ends_the_wait(api: FakeApiServer, command: Command) -> None:
    serve(api)
    ended = await command("run", "-c", "1", "--name", "mine")
    assert (ended.code, ended.last) == (
        4,
        "kubectl mcp-exec: no operator has observed mine within 1 s: check that the operator runs; mine is deleted",
    )
    detached = await command("run", "-c", "1", "--name", "mine", "--detach")
    assert (detached.code, detached.out) == (0, "mine\n")
    assert "mine" in api.collections[CEX]


async def test_a_run_that_is_observed_at_once_says_nothing(api: FakeApiServer, command: Command) -> None:
    at_creation(api, SILENT, {**DONE, "reason": ""})
    assert (await command("run", "-c", "1")).err == "e\n"
    running = asyncio.create_task(command("run", "-c", "1", "--name", "mine"))
    at_creation(api, SILENT)
    await api.until_asked(lambda: "mine" in api.collections[CEX])
    api.merge(CEX, "mine", {"status": {**DONE, "reason": ""}})
    assert (await running).err.splitlines()[-1:] == ["e"]


async def test_what_others_created_there_stays_until_it_is_cancelled(api: FakeApiServer, command: Command) -> None:
    api.put(CEX, {"metadata": {"name": "mine"}, "spec": {"code": "1"}, "status": SILENT})
    ended = await command("logs", "-f", "mine")
    assert (ended.code, ended.last.endswith("use -n; mine stays as it is")) == (3, True)
    cancelled = await command("cancel", "mine")
    sentence = "mine is deleted: namespace agents is not served by mcp-exec (served: team-a, team-b); use -n\n"
    assert (cancelled.code, cancelled.out) == (0, sentence)
    assert api.collections[CEX] == {}


PROGRAM = """
import socket, sys, threading
from mcp_exec_client.cli import main
from mcp_exec_client.cli import follower

follower._CANCEL_SECONDS = follower._ABANDON_SECONDS = 0.5
if sys.argv[1] == "no names":
    socket.getaddrinfo = lambda *_, **__: print("looks up", file=sys.stderr, flush=True) or threading.Event().wait()
getattr(main, sys.argv[2])(sys.argv[3:])
"""


@asynccontextmanager
async def started(
    api: FakeApiServer, folder: Path, *words: str, entry: str = "kubectl_main", mode: str = "", url: str = ""
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a command as a process of its own."""
    config = str(write_kubeconfig(folder / "kubeconfig", url or api.url))
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PATH", "PYTHON", "COVERAGE_"))}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, mode, entry, *words),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**kept, "HOME": str(folder), "KUBECONFIG": config},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def interrupted(process: asyncio.subprocess.Process, number: int = signal.SIGINT) -> tuple[int | None, str]:
    """Interrupt a process once, and return its exit code and the last line on its standard error."""
    process.send_signal(number)
    async with asyncio.timeout(SECONDS):
        assert process.stderr is not None
        lines = (await process.stderr.read()).decode().splitlines()
        await process.wait()
    return process.returncode, (lines or [""])[-1]


RUN = ("run", "-c", "1", "--name", "mine", "-n", "agents")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_one_interrupt_ends_a_run_that_no_operator_observes(
    api: FakeApiServer, tmp_path: Path, number: int
) -> None:
    at_creation(api, SILENT)
    async with started(api, tmp_path, *RUN) as process:
        await until(lambda: api.count_watches() == 1)
        assert await interrupted(process, number) == (130, "kubectl mcp-exec: mine is deleted")
    assert api.collections[CEX] == {}


async def test_one_interrupt_ends_a_run_whose_operator_does_not_answer(api: FakeApiServer, tmp_path: Path) -> None:
    at_creation(api, {"phase": "Running"})
    async with started(api, tmp_path, *RUN) as process:
        await until(lambda: api.count_watches() == 1)
        rest = "kubectl mcp-exec: mine is being cancelled, but has not ended within 0.5 s"
        assert await interrupted(process) == (130, rest)
    assert api.collections[CEX]["mine"]["spec"]["cancelRequested"]


async def test_one_interrupt_ends_a_run_whose_api_server_does_not_answer(api: FakeApiServer, tmp_path: Path) -> None:
    at_creation(api, {"phase": "Running"})
    async with started(api, tmp_path, *RUN) as process:
        await until(lambda: api.count_watches() == 1)
        api.hanging.add("/mine")
        rest = "kubectl mcp-exec: mine may still run: its cancellation has not been confirmed"
        assert await interrupted(process) == (130, rest)


async def test_one_interrupt_ends_the_creation_of_an_execution(api: FakeApiServer, tmp_path: Path) -> None:
    api.hanging.add("/codeexecutions")
    async with started(api, tmp_path, *RUN) as process:
        await api.until_asked(lambda: api.asked("POST", "/codeexecutions"))
        code, last = await interrupted(process, signal.SIGTERM)
        assert (code, "interrupted while the execution was created: it may run" in last) == (130, True)


@pytest.mark.parametrize(
    "words",
    [
        ("get",),
        ("logs", "-f", "mine"),
        ("approve", "mine", "a1"),
        ("doctor",),
    ],
    ids=" ".join,
)
async def test_one_interrupt_ends_each_command(api: FakeApiServer, tmp_path: Path, words: tuple[str, ...]) -> None:
    api.hanging.add("")  # each path
    async with started(api, tmp_path, *words, "-n", "agents") as process:
        await api.until_asked(lambda: api.seen)
        assert await interrupted(process) == (130, "kubectl mcp-exec: interrupted")


@pytest.mark.parametrize("entry", ["main", "kubectl_main"])
async def test_one_interrupt_ends_a_command_that_looks_up_a_name(
    api: FakeApiServer, tmp_path: Path, entry: str
) -> None:
    options = ("--gateway", "https://gateway.test", "--api-key", "k") if entry == "main" else ()
    async with started(
        api, tmp_path, "get", *options, entry=entry, mode="no names", url="http://api.test:1"
    ) as process:
        assert process.stderr is not None
        async with asyncio.timeout(SECONDS):
            assert await process.stderr.readline() == b"looks up\n"
        assert (await interrupted(process))[0] == 130


async def test_one_interrupt_ends_a_run_whose_gateway_does_not_answer(api: FakeApiServer, tmp_path: Path) -> None:
    api.hanging.add("")
    words = ("run", "-c", "1", "--gateway", api.url, "--api-key", "k")
    async with started(api, tmp_path, *words, entry="main") as process:
        await api.until_asked(lambda: api.seen)
        code, last = await interrupted(process)
        assert (code, "interrupted while the execution was created: it may run" in last) == (130, True)


async def test_one_interrupt_ends_a_chat_that_waits_for_a_line(api: FakeApiServer, tmp_path: Path) -> None:
    words = ("chat", "--offline", "--tool", "*", "--gateway", "http://127.0.0.1:1", "--api-key", "k")
    async with started(api, tmp_path, *words, entry="main") as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"/usage\n")
        async with asyncio.timeout(SECONDS):
            assert b"0 tasks" in await process.stderr.readline()
        assert (await interrupted(process))[0] == 130
