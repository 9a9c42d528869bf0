"""The sandbox as a whole: one runner, one execution in its life, and what clients may ask of it."""

import asyncio
import os
from typing import Any, Literal

from mcp_exec_sandbox.supervisor.event_log import EventLog
from mcp_exec_sandbox.supervisor.execution import Execution
from mcp_exec_sandbox.supervisor.job_request import ExecutionRequest
from mcp_exec_sandbox.supervisor.memory import CGROUP_ROOT, find_gauge
from mcp_exec_sandbox.supervisor.processes import kill_descendants, reap
from mcp_exec_sandbox.supervisor.runner_process import RunnerProcess
from mcp_exec_sandbox.supervisor.settings import Settings
from mcp_exec_sandbox.supervisor.task_count import TaskGauge
from mcp_exec_sandbox.supervisor.watchdog import Watchdog
from mcp_exec_sandbox.supervisor.wrappers import WrapperStore

State = Literal["starting", "idle", "running", "finished", "stopping"]


class Conflict(Exception):
    """The request doesn't fit the sandbox's state."""


class NotReady(Exception):
    """The runner hasn't started yet, or the sandbox is going away."""


class Sandbox:
    """Accepts one execution, ever."""

    def __init__(self, *, settings: Settings, runner: RunnerProcess) -> None:
        self._settings = settings
        self._runner = runner
        self._watchdog = Watchdog(
            settings=settings,
            memory=find_gauge(settings.memory_bytes),
            tasks=TaskGauge(supervisor=os.getpid(), cgroup_root=CGROUP_ROOT),
            supervisor=os.getpid(),
        )
        self._execution: Execution | None = None
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._failed = asyncio.Event()
        self._cleaned_up = False
        self.execution_id: str | None = None
        """The execution that was accepted."""
        self.log = EventLog()
        """Its events."""
        self.wrappers = WrapperStore(settings.workspace)
        """Wrappers of MCP servers for it."""
        self.state: State = "starting"
        """Where the sandbox stands."""
        runner.listen(self)

    async def wait_until_ready(self, seconds: float) -> bool:
        """Wait until the runner waits for its job; False if it died or took longer than `seconds`."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self._ready, self._failed)]
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        return self._ready.is_set() and not self._failed.is_set()

    async def wait_for_failure(self) -> None:
        """Return when the runner has died without a job: this sandbox is of no use."""
        await self._failed.wait()

    def open(self) -> None:
        """From now on an execution is accepted."""
        if self.state == "starting":
            self.state = "idle"

    def accept(self, request: ExecutionRequest) -> None:
        """Start the execution.

        Raises:
            Conflict: one was accepted before.
            NotReady: there is no runner to give it to.
        """
        if self.execution_id is not None:
            raise Conflict("this sandbox has accepted an execution before")
        if self.state != "idle":
            raise NotReady(f"the sandbox is {self.state}")
        self.execution_id = request.id
        self.state = "running"
        self.wrappers.close()
        self._execution = Execution(
            request=request,
            runner=self._runner,
            log=self.log,
            watchdog=self._watchdog,
            wrappers=self.wrappers,
            grace_seconds=self._settings.grace_seconds,
        )
        self._task = asyncio.create_task(self._run(self._execution))

    def cancel(self) -> bool:
        """Cancel the execution; False if it has finished already.

        Raises:
            Conflict: there is none.
        """
        if self._execution is None:
            raise Conflict("this sandbox has no execution")
        if self.state != "running":
            return False
        self._execution.cancel()
        return True

    def stop(self) -> None:
        """Kill all code; nothing is accepted any more."""
        self.state = "stopping"
        if self._task is not None:
            self._task.cancel()
        kill_descendants()

    def collect_children(self) -> None:
        """Reap what has ended, orphans of the code included; after the run, kill what still appears."""
        for pid, code in reap():
            if pid == self._runner.pid:
                self._runner.ended(code)
        if self._cleaned_up:
            kill_descendants()

    def on_message(self, message: dict[str, Any]) -> None:
        """The runner speaks before it has a job: it is ready."""
        if message.get("type") == "ready":
            self._ready.set()

    def on_output(self, stream: int, data: memoryview) -> None:
        """Output before the job: Python failed to start; it goes to the container's log."""
        os.write(2, data[:4096])

    def on_exit(self, code: int) -> None:
        """The runner died before it had a job."""
        self._failed.set()

    async def _run(self, execution: Execution) -> None:
        await execution.run()
        self.state = "finished"
        await execution.clean_up()
        self._cleaned_up = True
        # The watch began before the kill: what died meanwhile is reaped now, the rest as it dies.
        self.collect_children()
