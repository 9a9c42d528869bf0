"""Limits of a run in time, and those that no kernel limit enforces clearly: tasks, memory and storage in total."""

import asyncio
import signal
from collections.abc import Callable, Collection
from dataclasses import dataclass

from mcp_exec_sandbox.protocol import LimitName
from mcp_exec_sandbox.supervisor.execution.outcome import Reason, SupervisorDecision
from mcp_exec_sandbox.supervisor.json_object import InvalidRequest, parse_body
from mcp_exec_sandbox.supervisor.resources.processes import (
    Process,
    TaskCounter,
    find_folder,
    kill_process,
    list_descendants,
)
from mcp_exec_sandbox.supervisor.resources.usage import MemoryGauge, measure_storage
from mcp_exec_sandbox.supervisor.settings import MIB, Settings

MAX_EXTENSION_SECONDS = 3600
UNCONFIRMED_SECONDS = 2.0
"""Time that waits can postpone the end by if no extension has confirmed them, in all of the run."""
INTERVAL_SECONDS = 0.05
TICKS_PER_STORAGE_WALK = 10
MANY_TASKS = 16
SMALL_TASK_BYTES = 32 * MIB
"""More than `MANY_TASKS` tasks that use less than this each, but all memory together, exceed the limit of processes."""
FEW_PROCESSES = 2
"""Threads of so few processes do not count as such tasks: Deno has a dozen of its own."""


@dataclass(frozen=True, kw_only=True)
class ExtensionRequest:
    """The checked body of `PUT /v1/execution/extension`: the execution, and its time of waiting in all."""

    id: str
    seconds: float

    @classmethod
    def from_body(cls, body: bytes) -> "ExtensionRequest":
        """Parse the body.

        Raises:
            InvalidRequest: it is not a JSON object, or a field is missing, unknown or invalid.
        """
        fields = parse_body(body, ("id", "seconds"))
        identifier = fields.get("id")
        if not isinstance(identifier, str):
            raise InvalidRequest("id: must be a string")
        return cls(id=identifier, seconds=_parse_seconds(fields.get("seconds")))


class RunClock:
    """Timer of one run."""

    def __init__(self, *, timeout_seconds: float, on_timeout: Callable[[], None]) -> None:
        self._timeout_seconds = timeout_seconds
        self._on_timeout = on_timeout
        self._started = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._is_unconfirmed = False
        self._unconfirmed_left = UNCONFIRMED_SECONDS
        self.extension_seconds = 0.0
        """Seconds that waits add to the time limit."""

    def start(self) -> None:
        """Start the clock."""
        self._started = asyncio.get_running_loop().time()
        self._schedule()

    def stop(self) -> None:
        """Stop the clock for good."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def expect_extension(self) -> None:
        """Note that a call is said to wait."""
        self._is_unconfirmed = True

    def extend(self, seconds: float) -> None:
        """Let the run take so many seconds beyond its time limit, in all. Fewer than before end it earlier."""
        self._is_unconfirmed = False
        self.extension_seconds = seconds
        if self._timer is not None:
            self._timer.cancel()
            self._schedule()

    def _schedule(self) -> None:
        end = self._started + self._timeout_seconds + self.extension_seconds
        self._timer = asyncio.get_running_loop().call_at(end, self._expire)

    def _expire(self) -> None:
        if self._is_unconfirmed and self._unconfirmed_left:
            delay, self._unconfirmed_left = self._unconfirmed_left, 0.0
            self._timer = asyncio.get_running_loop().call_later(delay, self._expire)
            return
        self._timer = None
        self._on_timeout()


def _parse_seconds(value: object) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= MAX_EXTENSION_SECONDS:
        return float(value)
    raise InvalidRequest(f"seconds: must be a number from 0 to {MAX_EXTENSION_SECONDS}")


class Watchdog:
    """Periodic check of the limits, active only while code runs."""

    def __init__(
        self,
        *,
        settings: Settings,
        memory: MemoryGauge,
        tasks: TaskCounter,
        supervisor: int,
        template: Collection[int] = (),
    ) -> None:
        """Prepare. `template` is the pid of the runner's template, if it has one, which belongs to no run."""
        self._settings = settings
        self._template = template
        self._memory = memory
        self._tasks = tasks
        self._supervisor = supervisor
        self.peak_bytes = 0
        """The highest memory use measured."""

    def has_kernel_kill(self) -> bool:
        """Return whether the kernel has killed a process of this sandbox because memory ran out."""
        return self._memory.count_kernel_kills() > 0

    def describe_limits(self) -> dict[LimitName, str]:
        """Return each limit as a part of a sentence."""
        settings = self._settings
        return {
            "memory": f"the memory limit of the sandbox is {settings.memory_bytes // MIB} MiB",
            "processes": f"the sandbox may have {settings.max_processes} processes and threads",
            "storage": f"the files of the sandbox may take {settings.storage_bytes // MIB} MiB",
        }

    async def watch(self, end_run: Callable[[SupervisorDecision], None]) -> None:
        """Check periodically. Call `end_run` once a limit is exceeded, and return."""
        tick = 0
        while True:
            await asyncio.sleep(INTERVAL_SECONDS)
            tick += 1
            tasks = self._tasks.count(without=self._template)
            decision = self._check_tasks(tasks) or self._check_memory(tasks)
            if decision is None and tick % TICKS_PER_STORAGE_WALK == 0:
                decision = await self._check_storage()
            if decision is not None:
                end_run(decision)
                return

    def _check_tasks(self, tasks: int) -> SupervisorDecision | None:
        if tasks <= self._settings.max_processes:
            return None
        return _fail("ProcessLimit", f"more than {self._settings.max_processes} processes and threads")

    def _check_memory(self, tasks: int) -> SupervisorDecision | None:
        used = self._memory.read_used_bytes(self._list_processes)
        self.peak_bytes = max(self.peak_bytes, used)
        if used <= self._settings.memory_bytes - self._memory.reserve_bytes and not self.has_kernel_kill():
            return None
        size = self._settings.memory_bytes // MIB
        if tasks > MANY_TASKS and used // tasks < SMALL_TASK_BYTES and len(self._list_processes()) > FEW_PROCESSES:
            # The cause is the number of tasks, not their memory: in gVisor a fork of an idle interpreter uses 13 MiB.
            return _fail("ProcessLimit", f"{tasks} processes and threads need more memory than there is ({size} MiB)")
        return _fail("OutOfMemory", f"the processes need more memory than the sandbox has ({size} MiB in all)")

    async def _check_storage(self) -> SupervisorDecision | None:
        folders = (self._settings.workspace, self._settings.temporary)
        limit = self._settings.storage_bytes
        if await measure_storage(folders, self._find_process_folders(), enough=limit) <= limit:
            return None
        names = " and ".join(str(folder) for folder in folders)
        return _fail("StorageLimit", f"the files in {names} take more than {limit // MIB} MiB or are too many")

    def _find_process_folders(self) -> list[str]:
        """Return the folders of /proc that show the open files of the code. What shows none is killed."""
        found = []
        for process in self._list_processes():
            if (folder := find_folder(process)) is not None:
                found.append(folder)
            else:
                kill_process(process.pid, signal.SIGKILL)
        return found

    def _list_processes(self) -> list[Process]:
        return [process for process in list_descendants(self._supervisor) if process.pid not in self._template]


def compute_runner_memory(limit: int) -> int:
    """Return the private memory of one process, below `limit`: it gets a `MemoryError` before the container is full."""
    return limit - min(max(limit // 5, 32 * MIB), 128 * MIB)


def _fail(reason: Reason, message: str) -> SupervisorDecision:
    return SupervisorDecision(phase="Failed", reason=reason, message=message)
