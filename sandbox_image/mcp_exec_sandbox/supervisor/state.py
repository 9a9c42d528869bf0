"""State of the sandbox: one runner, at most one execution in its life, and the requests that each state allows."""

import asyncio
import itertools
import os
from typing import Any, Literal

from mcp_exec_sandbox.supervisor.execution.code_run import CodeRun
from mcp_exec_sandbox.supervisor.execution.event_log import EventLog
from mcp_exec_sandbox.supervisor.execution.job_request import ExecutionRequest
from mcp_exec_sandbox.supervisor.execution.outcome import SupervisorDecision
from mcp_exec_sandbox.supervisor.execution.runner_process import RunnerProcess
from mcp_exec_sandbox.supervisor.execution.watchdog import Watchdog
from mcp_exec_sandbox.supervisor.resources.memory import CGROUP_ROOT, find_gauge
from mcp_exec_sandbox.supervisor.resources.processes import kill_descendants, reap_children
from mcp_exec_sandbox.supervisor.resources.task_count import TaskCounter
from mcp_exec_sandbox.supervisor.settings import Settings
from mcp_exec_sandbox.supervisor.wrapper_store import WrapperStore

REAPED_PER_TURN = 256
"""Ended children that are reaped in a turn of the event loop. Code may make orphans faster than they are reaped."""

State = Literal["starting", "idle", "running", "finished", "stopping"]


class StateConflict(Exception):
    """The sandbox's state does not allow the request."""


class SandboxNotReady(Exception):
    """The runner has not started yet, or the sandbox is stopping."""


class SandboxState:
    """The sandbox as a whole. It accepts one execution in its life."""

    def __init__(self, *, settings: Settings, runner: RunnerProcess) -> None:
        self._settings = settings
        self._runner = runner
        self._watchdog = Watchdog(
            settings=settings,
            memory=find_gauge(settings.memory_bytes),
            tasks=TaskCounter(supervisor=os.getpid(), cgroup_root=CGROUP_ROOT),
            supervisor=os.getpid(),
        )
        self._run: CodeRun | None = None
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._failed = asyncio.Event()
        self._cleaned_up = False
        self.execution_id: str | None = None
        """The accepted execution."""
        self.log = EventLog()
        """Events of the execution."""
        self.wrappers = WrapperStore(settings.workspace)
        """Wrappers of MCP servers for the execution."""
        self.state: State = "starting"
        """The current state."""
        runner.listen(self)

    async def wait_until_ready(self, seconds: float) -> bool:
        """Wait until the runner can take its job. Return False if it died or took longer than `seconds`."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self._ready, self._failed)]
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        return self._ready.is_set() and not self._failed.is_set()

    async def wait_for_failure(self) -> None:
        """Return once the runner has died without a job, which makes the sandbox useless."""
        await self._failed.wait()

    def open(self) -> None:
        """Accept an execution from now on."""
        if self.state == "starting":
            self.state = "idle"

    def accept(self, request: ExecutionRequest) -> None:
        """Start the execution.

        Raises:
            StateConflict: the sandbox has accepted an execution before.
            SandboxNotReady: no runner can take it.
        """
        if self.execution_id is not None:
            raise StateConflict("this sandbox has accepted an execution before")
        if self.state != "idle":
            raise SandboxNotReady(f"the sandbox is {self.state}")
        self.execution_id = request.id
        self.state = "running"
        self.wrappers.close()
        self._run = CodeRun(
            request=request,
            runner=self._runner,
            log=self.log,
            watchdog=self._watchdog,
            wrappers=self.wrappers,
            grace_seconds=self._settings.grace_seconds,
        )
        self._task = asyncio.create_task(self._complete(self._run))

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

    def lose_isolation(self, problem: str) -> bool:
        """End the execution at once. Return False if there is none: then the sandbox accepts none any more."""
        if self._run is None:
            self.state = "stopping"
            return False
        self._run.end_now(SupervisorDecision(phase="Failed", reason="IsolationLost", message=problem))
        return True

    def stop(self) -> None:
        """Kill all code and accept nothing from now on."""
        self.state = "stopping"
        if self._task is not None:
            self._task.cancel()
        kill_descendants()

    def collect_children(self) -> None:
        """Reap ended children, adopted orphans included. After the run, kill new processes."""
        reaped = 0
        for pid, code in itertools.islice(reap_children(), REAPED_PER_TURN):
            reaped += 1
            if pid == self._runner.pid:
                self._runner.handle_exit(code)
        if reaped == REAPED_PER_TURN:
            asyncio.get_running_loop().call_soon(self.collect_children)
        if self._cleaned_up:
            kill_descendants()

    def on_message(self, message: dict[str, Any]) -> None:
        """Handle the runner's only message before its job: it is ready."""
        if message.get("type") == "ready":
            self._ready.set()

    def on_control(self, size: int) -> None:
        """Ignore the size: no code runs before the job."""

    def on_output(self, stream: int, data: memoryview) -> None:
        """Copy output that precedes the job to the container's log: Python failed to start."""
        os.write(2, data[:4096])

    def on_exit(self, code: int) -> None:
        """Handle the runner's death before its job."""
        self._failed.set()

    async def _complete(self, run: CodeRun) -> None:
        try:
            await run.run()
        finally:
            # Not after a stop, which has killed the code itself.
            if self.state == "running":
                self.state = "finished"
        await run.clean_up()
        self._cleaned_up = True
        # SIGCHLD has been handled since before the kill: reap what has died until now; the rest follows as it dies.
        self.collect_children()
