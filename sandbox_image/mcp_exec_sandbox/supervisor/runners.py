"""The interpreters of the sandbox: the one that the next job gets, and the template that it was forked from."""

import asyncio
import contextlib
import os
import signal
from typing import Any

from mcp_exec_sandbox.protocol import EXITED
from mcp_exec_sandbox.supervisor.execution.job_request import ExecutionRequest
from mcp_exec_sandbox.supervisor.execution.runner_process import RunnerProcess
from mcp_exec_sandbox.supervisor.resources.processes import kill_process, list_descendants, stop_descendants

MAX_USES = 100_000
"""Executions of one sandbox, whose ids are kept so that none runs twice. A pool sets a far lower limit."""
END_SECONDS = 1.0
"""Time for a killed interpreter to end."""
READY_SECONDS = 8.0
"""Time for a forked or a new interpreter to get ready, after the first one."""
REST_CHECK_SECONDS = 1.0
"""Time between two checks that the interpreter of a session is stopped between its jobs."""


class StateConflict(Exception):
    """The sandbox's state, or what it has accepted before, does not allow the request."""


class InterpreterEnded(Exception):
    """The interpreter of the sandbox's session has ended. Its variables are gone."""


class Tenancy:
    """The one owner of a sandbox, or the one execution without an owner."""

    def __init__(self) -> None:
        self._accepted: set[str] = set()
        self.owner: str | None = None
        """Owner of this sandbox, once it has accepted a job of one."""
        self.last_id: str | None = None
        """The last accepted execution."""
        self.is_session = False
        """Whether the last execution belongs to a session."""
        self.begun = asyncio.Event()
        """Set by each execution. A task that waits for the next one clears it first."""

    @property
    def uses(self) -> int:
        """Executions accepted so far."""
        return len(self._accepted)

    def check(self, request: ExecutionRequest) -> None:
        """Check that the sandbox may serve the job, whatever its state.

        Raises:
            StateConflict: it may not.
        """
        if not self._accepted:
            return
        if self.owner is None or request.id in self._accepted:
            raise StateConflict("this sandbox has accepted an execution before")
        if request.owner != self.owner:
            raise StateConflict("this sandbox serves another owner")
        if self.uses >= MAX_USES:
            raise StateConflict(f"this sandbox has accepted {MAX_USES} executions")

    def accept(self, request: ExecutionRequest) -> None:
        """Record an execution that `check` has allowed."""
        self._accepted.add(request.id)
        self.owner, self.last_id, self.is_session = request.owner, request.id, request.session
        self.begun.set()


class KeptSession:
    """What the interpreter of a session has done, until the sandbox is cleaned."""

    def __init__(self) -> None:
        self.executions = 0
        self.cpu_seconds: float | None = None
        """CPU time of the interpreter at the end of its last job."""


class RunnerFailed(Exception):
    """An interpreter did not get ready, or has ended."""


class IdleListener:
    """Listener of an interpreter that runs no code: before its job, after a session's, or as a template."""

    def __init__(self, ended: asyncio.Event | None = None) -> None:
        self.ready = asyncio.Event()
        """Set once it can take its job."""
        self.ended = ended or asyncio.Event()
        """Set if it has ended."""
        self.problem = ""
        """Why it did not start, if it reported that."""
        self.import_costs: object = None
        """Time and memory of the modules that it has imported for the pool."""

    async def wait(self, seconds: float) -> bool:
        """Wait until it is ready. Return False if it died or took longer than `seconds`."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self.ready, self.ended)]
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        return self.ready.is_set() and not self.ended.is_set()

    def on_message(self, message: dict[str, Any]) -> None:
        """Handle the only message before a job: it is ready, or it failed. Later ones are those of stopped code."""
        if self.ready.is_set():
            return
        if message.get("type") == "ready":
            self.import_costs = message.get("preimport")
            self.ready.set()
        elif message.get("type") == "failed":
            self.problem = str(message.get("message"))
            self.ended.set()

    def on_control(self, size: int) -> None:
        """Ignore the size: no code runs."""

    def on_output(self, stream: int, data: memoryview) -> None:
        """Copy output that precedes the job to the container's log: Python failed to start. Drop the code's."""
        if not self.ready.is_set():
            os.write(2, data[:4096])

    def on_exit(self, code: int) -> None:
        """Handle its death."""
        self.ended.set()


class _TemplateListener(IdleListener):
    """Listener of a template, which reports the end of the runner that it has forked last."""

    def __init__(self, runners: "RunnerSet") -> None:
        super().__init__()
        self._runners = runners

    def on_message(self, message: dict[str, Any]) -> None:
        """Handle the report. No code can have sent it."""
        code = message.get("code")
        if message.get("type") == EXITED and isinstance(code, int):
            self._runners.current.handle_exit(code)

    def on_output(self, stream: int, data: memoryview) -> None:
        """Drop output: a template has none."""


class RunnerSet:
    """The current interpreter, and its template from the first job of an owner on."""

    def __init__(self, first: RunnerProcess) -> None:
        self.current = first
        """The interpreter of the last or of the next job."""
        self.failed = asyncio.Event()
        """Set if an interpreter has ended before its job, which makes the sandbox useless."""
        self.idle = IdleListener(self.failed)
        """Listener to the current interpreter while it runs no code."""
        self._template: RunnerProcess | None = None
        self._template_listener = _TemplateListener(self)
        self._rest: asyncio.Task[None] | None = None
        first.listen(self.idle)

    @property
    def template(self) -> tuple[int, ...]:
        """The template's pid, if there is a template."""
        return () if self._template is None else (self._template.pid,)

    def prepare_owned(self) -> None:
        """Make the first interpreter the template of the others, if it can be, and a fork of it the current one."""
        if self._template is None and self.current.can_fork:
            self._template = self.current
            self._template.listen(self._template_listener)
            self._replace(self._template.fork())

    async def renew(self) -> None:
        """Replace the interpreter, which has ended, by a fork of the template or, without one, by a new interpreter.

        Raises:
            RunnerFailed: it does not get ready, or the template has ended.
        """
        if self._template_listener.ended.is_set():
            raise RunnerFailed("the template of the interpreters has ended")
        former = self.current
        former.close()
        self._replace(former.start_another() if self._template is None else self._template.fork())
        if not await self.idle.wait(READY_SECONDS):
            raise RunnerFailed("a new interpreter did not get ready")

    async def end(self) -> None:
        """Kill the current interpreter and wait a moment for its end. Mostly it is the only process left."""
        self.current.listen(listener := IdleListener())
        listener.ready.set()
        if self.current.exit_code is None and self.current.pid:
            kill_process(self.current.pid, signal.SIGKILL)
            self.current.wake()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    await listener.ended.wait()

    def rest(self) -> None:
        """Note that the current interpreter stays, stopped, for the next job of its session."""
        self.idle = IdleListener()
        self.idle.ready.set()
        self.current.listen(self.idle)
        if self._rest is not None:
            self._rest.cancel()
        self._rest = asyncio.create_task(self._keep_stopped(self.idle))

    async def _keep_stopped(self, listener: IdleListener) -> None:
        """Stop what runs between two jobs, until the interpreter has another listener.

        Code can't wake itself by the ways that its seccomp filter refuses. This is for those that nobody knows.
        """
        while True:
            await asyncio.sleep(REST_CHECK_SECONDS)
            if not self.current.has_listener(listener):
                return
            processes = [each for each in list_descendants(os.getpid()) if each.pid not in self.template]
            if any(process.is_running for process in processes):
                stop_descendants()

    def handle_exit(self, pid: int, code: int) -> None:
        """Handle the end of a child of the supervisor: the template, or an interpreter without one."""
        process = self.current if self._template is None else self._template
        if pid == process.pid:
            process.handle_exit(code)

    def _replace(self, runner: RunnerProcess) -> None:
        self.current, self.idle = runner, IdleListener(self.failed)
        runner.listen(self.idle)
