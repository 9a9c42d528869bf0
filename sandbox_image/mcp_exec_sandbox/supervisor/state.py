"""State of the sandbox: its interpreter, its executions one after another, and the requests that each state allows."""

import asyncio
import contextlib
import itertools
import os
import sys
import time
from typing import Literal

from mcp_exec_sandbox.protocol import ARTIFACTS_FOLDER
from mcp_exec_sandbox.supervisor.cleaning import HeldResources, NotCleaned, WritablePlaces
from mcp_exec_sandbox.supervisor.execution.code_run import CodeRun
from mcp_exec_sandbox.supervisor.execution.events import EventLog, LogMirror
from mcp_exec_sandbox.supervisor.execution.job_request import ExecutionRequest
from mcp_exec_sandbox.supervisor.execution.outcome import SupervisorDecision
from mcp_exec_sandbox.supervisor.execution.runner_process import RunnerProcess
from mcp_exec_sandbox.supervisor.execution.watchdog import Watchdog
from mcp_exec_sandbox.supervisor.files.request import KeptFiles
from mcp_exec_sandbox.supervisor.files.run_files import RunFiles
from mcp_exec_sandbox.supervisor.resources.processes import (
    TaskCounter,
    end_descendants,
    kill_descendants,
    list_descendants,
    reap_children,
    stop_descendants,
)
from mcp_exec_sandbox.supervisor.resources.usage import CGROUP_ROOT, find_gauge, read_proportional_bytes
from mcp_exec_sandbox.supervisor.runners import (
    InterpreterEnded,
    KeptSession,
    RunnerFailed,
    RunnerSet,
    StateConflict,
    Tenancy,
)
from mcp_exec_sandbox.supervisor.settings import Settings
from mcp_exec_sandbox.supervisor.wrapper_store import HIDDEN_FOLDER, WrapperStore

REAPED_PER_TURN = 256
"""Ended children that are reaped in a turn of the event loop. Code may make orphans faster than they are reaped."""
END_SECONDS = 2.0
"""Time for all processes of a run to end."""
CLEAN_SECONDS = 8.0
"""Time to empty the places that the code could write to."""
FREE_SECONDS = 1.0
"""Time for the kernel to free the memory of ended processes."""
SETTLE_SECONDS = 5.0
"""Time between a run's event `end` and the state that follows, at most."""
START_SECONDS = 0.1
"""Time from the start of an execution to the first check of the sandbox's isolation in it."""
State = Literal["starting", "idle", "running", "finished", "cleaning", "stopping"]


class SandboxNotReady(Exception):
    """The runner has not started yet, or the sandbox is stopping."""


class SandboxState:
    """The sandbox as a whole. It serves one execution, or one owner."""

    def __init__(self, *, settings: Settings, runner: RunnerProcess) -> None:
        self._settings = settings
        self.runners = RunnerSet(runner)
        """The interpreters."""
        self._places: WritablePlaces | None = None
        self._held: HeldResources | None = None
        self._tenancy = Tenancy()
        self._run: CodeRun | None = None
        self._task: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()
        self._recycling: asyncio.Task[float] | None = None
        self._clean_ms = 0.0
        self._problem = ""
        """Why the sandbox can't be used again."""
        self._session = KeptSession()
        self._memory = find_gauge(settings.memory_bytes)
        self._tasks = TaskCounter(supervisor=os.getpid(), cgroup_root=CGROUP_ROOT)
        self._mirror = LogMirror(sys.stdout.fileno()).add if settings.log_output else None
        self._cleaned_up = False
        self._files = KeptFiles(root=settings.workspace)
        self._files.make_artifacts_folder()
        self.log = EventLog(mirror=self._mirror)
        """Events of the last execution."""
        self.wrappers = WrapperStore(settings.workspace, language=settings.language)
        """Wrappers of MCP servers for the executions."""
        self.state: State = "starting"
        """The current state."""

    @property
    def execution_id(self) -> str | None:
        """The last accepted execution."""
        return self._tenancy.last_id

    @property
    def uses(self) -> int:
        """Executions accepted so far."""
        return self._tenancy.uses

    @property
    def has_failed_to_import(self) -> bool:
        """Whether the runner did not start, and imported the pool's modules, or may have been at it."""
        return bool(self._settings.preimport) and not self.runners.idle.ready.is_set()

    def explain_failed_start(self, seconds: float) -> str:
        """Return why the runner has not started in `seconds`."""
        if self.runners.idle.problem:
            return self.runners.idle.problem
        code = self.runners.current.exit_code
        text = f"the runner did not start within {seconds:.0f} s" if code is None else f"the runner exited with {code}"
        if self._settings.preimport:
            text += f"; it imports the modules {', '.join(self._settings.preimport)[:300]} of spec.preimport first"
        return text

    def open(self) -> None:
        """Accept an execution from now on."""
        if self.state == "starting":
            self.state = "idle"

    async def rest(self, seconds: float) -> None:
        """Wait so long, or until shortly after the start of an execution. Return at once if the sandbox is not idle."""
        if self.state != "idle":
            return
        self._tenancy.begun.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._tenancy.begun.wait()
                # Not while the code starts.
                await asyncio.sleep(START_SECONDS)

    async def settle(self) -> None:
        """Wait for the state that follows the event `end`, if the last run has ended but a moment ago."""
        if self.state == "running" and self.log.has_ended:
            async with asyncio.timeout(SETTLE_SECONDS):
                await self._settled.wait()

    @property
    def is_settling(self) -> bool:
        """Whether `settle` would wait."""
        return self.state == "running" and self.log.has_ended and self._tenancy.owner is not None

    def accept(self, request: ExecutionRequest) -> None:
        """Start the execution.

        Raises:
            StateConflict: what the sandbox has accepted before does not allow it.
            InterpreterEnded: the interpreter of the session is gone.
            SandboxNotReady: no runner can take it.
        """
        self._tenancy.check(request)
        if self._tenancy.uses and self.state == "idle":
            self._check_session(request)
        elif self.state == "finished" and self._tenancy.is_session and request.session:
            raise InterpreterEnded("the interpreter of this sandbox's session has ended")
        elif self.state in ("running", "finished", "cleaning"):
            raise StateConflict(f"the sandbox is {self.state}; it is idle again once it was recycled")
        if self.state != "idle":
            raise SandboxNotReady(f"the sandbox is {self.state}")
        self._tenancy.accept(request)
        self.state = "running"
        self.wrappers.close()
        self._begin(request)

    def _check_session(self, request: ExecutionRequest) -> None:
        """Check that a job suits the interpreter, which may have the variables of earlier ones."""
        if self._session.executions and not request.session:
            raise StateConflict("this sandbox keeps a session; other jobs can run once it was recycled")
        if self._session.executions and self.runners.current.find_process() is None:
            self.state = "finished"
            raise InterpreterEnded("the interpreter of this sandbox's session has ended")

    def _begin(self, request: ExecutionRequest) -> None:
        if self._tenancy.uses > 1:
            self.log = EventLog(mirror=self._mirror)
            self._settled.clear()
            self._cleaned_up = False
        if request.owner is not None:
            self._prepare_owned()
        if request.session:
            self._session.executions += 1
        self._run = CodeRun(
            request=request,
            runner=self.runners.current,
            log=self.log,
            watchdog=self._build_watchdog(),
            wrappers=self.wrappers,
            files=RunFiles(request=request.files, kept=self._files),
            grace_seconds=self._settings.grace_seconds,
            template=self.runners.template,
            runner_cpu_seconds=self._session.cpu_seconds,
        )
        self._task = asyncio.create_task(self._complete(self._run, request))

    def _prepare_owned(self) -> None:
        """Find what has to be cleaned after the owner's first job, before it runs, and make the template."""
        if self._places is None:
            folders = (self._settings.workspace, self._settings.temporary)
            self._places = WritablePlaces.find(folders, expected=(ARTIFACTS_FOLDER, HIDDEN_FOLDER))
            if self._memory.shows_held_bytes:
                self._held = HeldResources(
                    read_memory=lambda: self._memory.read_used_bytes(lambda: list_descendants(os.getpid())),
                    folder=self._settings.workspace,
                    disk_bytes=2 * self._settings.storage_bytes,
                )
        self.runners.prepare_owned()

    def _build_watchdog(self) -> Watchdog:
        return Watchdog(
            settings=self._settings,
            memory=self._memory,
            tasks=self._tasks,
            supervisor=os.getpid(),
            template=self.runners.template,
        )

    def cancel(self) -> bool:
        """Cancel the execution. Return False if it has already finished.

        Raises:
            StateConflict: the sandbox has no execution.
        """
        if self._run is None:
            raise StateConflict("this sandbox has no execution")
        if self.state != "running":
            return False
        self._run.cancel()
        return True

    def extend(self, execution: str, seconds: float) -> None:
        """Let the execution run so many seconds longer than its time limit, in all.

        Raises:
            StateConflict: the sandbox does not run this execution.
        """
        if self._run is None or self.state != "running" or execution != self.execution_id:
            raise StateConflict("this sandbox does not run the execution")
        self._run.extend(seconds)

    async def recycle(self, execution: str) -> float:
        """Remove all that the last execution left, and get an interpreter for the next. Return the milliseconds.

        Raises:
            StateConflict: the sandbox runs code, serves no owner, or the execution is not its last.
            NotCleaned: something can't be removed. It never can be afterwards.
        """
        await self.settle()
        if self._tenancy.owner is None or execution != self.execution_id:
            raise StateConflict("the execution is not the last one of an owner in this sandbox")
        if self.state in ("running", "stopping"):
            raise StateConflict(f"the sandbox is {self.state}")
        if self._recycling is None:
            if self.state == "idle" and not self._session.executions:
                return self._clean_ms
            self.state = "cleaning"
            self._recycling = asyncio.create_task(self._recycle())
        # The request may end before.
        return await asyncio.shield(self._recycling)

    async def _recycle(self) -> float:
        started = time.perf_counter()
        try:
            await self._clean()
        except (NotCleaned, RunnerFailed, OSError) as error:
            self._problem = str(error) if not isinstance(error, OSError) else f"OSError: {error.strerror}"
        finally:
            self._recycling = None
        if self.state != "cleaning":
            raise NotCleaned(f"the sandbox is {self.state}")
        if self._problem:
            self.state = "finished"
            raise NotCleaned(self._problem)
        self._session = KeptSession()
        self.state = "idle"
        self._clean_ms = (time.perf_counter() - started) * 1000
        return self._clean_ms

    async def _clean(self) -> None:
        if self._problem:
            raise NotCleaned(self._problem)
        if self._task is not None:
            # It would kill what is left after a moment, the new interpreter included.
            self._task.cancel()
        self._cleaned_up = False
        await self.runners.end()
        if not await end_descendants(spare=self.runners.template, seconds=END_SECONDS):
            raise NotCleaned("a process of the code does not end")
        assert self._places is not None  # noqa: S101 - found before the first job
        await self._places.clean(seconds=CLEAN_SECONDS)
        self._files.forget()
        self._files.make_artifacts_folder()
        await self.runners.renew()
        await self.wrappers.restore()
        if self._held is not None:
            await self._held.check(seconds=FREE_SECONDS)

    def describe_session(self) -> dict[str, int] | None:
        """Return the state of the session, or None if the last execution belongs to none."""
        if not self._tenancy.is_session or not self._session.executions:
            return None
        process = self.runners.current.find_process()
        alive = process is not None and self.state in ("idle", "running")
        memory = read_proportional_bytes(process) if process is not None else 0
        return {"executions": self._session.executions, "memoryBytes": memory, "alive": alive}

    def lose_isolation(self, problem: str) -> bool:
        """End the execution at once. Return False if there is none: then the sandbox accepts none any more."""
        self._problem = problem
        if self._run is None or self.state in ("idle", "cleaning"):
            self.state = "stopping"
            return False
        self._run.end_now(SupervisorDecision(phase="Failed", reason="IsolationLost", message=problem))
        return True

    def stop(self) -> None:
        """Kill all code and accept nothing from now on."""
        self.state = "stopping"
        for task in (self._task, self._recycling):
            if task is not None:
                task.cancel()
        kill_descendants()

    def collect_children(self) -> None:
        """Reap ended children, adopted orphans included. After the run, kill new processes."""
        reaped = 0
        for pid, code in itertools.islice(reap_children(), REAPED_PER_TURN):
            reaped += 1
            self.runners.handle_exit(pid, code)
        if reaped == REAPED_PER_TURN:
            asyncio.get_running_loop().call_soon(self.collect_children)
        if self._cleaned_up:
            kill_descendants(spare=self.runners.template)

    async def _complete(self, run: CodeRun, request: ExecutionRequest) -> None:
        try:
            await run.run()
            is_kept = request.session and await self._keep_session(run)
            if run.has_breached:
                self._problem = self._problem or f"the last execution ended with {run.reason}"
        finally:
            # Not after a stop, which has killed the code itself.
            if self.state == "running":
                self.state = "finished"
        if is_kept and self.state == "finished":
            self.state = "idle"
        self._settled.set()
        if is_kept:
            return
        await run.clean_up()
        self._cleaned_up = True
        # SIGCHLD has been handled since before the kill: reap what has died until now; the rest follows as it dies.
        self.collect_children()

    async def _keep_session(self, run: CodeRun) -> bool:
        """Keep the stopped interpreter for the next job of its session, and end all other processes."""
        if not run.keeps_interpreter:
            return False
        self._session.cpu_seconds = run.runner_cpu_seconds
        self.runners.rest()
        stop_descendants()
        spare = (*self.runners.template, self.runners.current.pid)
        has_ended_others = await end_descendants(spare=spare, seconds=END_SECONDS)
        # The end of another process may have woken the interpreter, for example if it held its terminal.
        stop_descendants()
        return has_ended_others and not self.runners.idle.ended.is_set()
