"""One run, from the job handed to the runner to its `end` event.

Only the supervisor decides that a run was out of time, cancelled or over a limit; what the runner says can't change
that, as the agent's code may be the one that speaks.
"""

import asyncio
import contextlib
import json
import time
from typing import Any

from mcp_exec_sandbox.protocol import TOOL_EVENTS
from mcp_exec_sandbox.supervisor.calls import CallEvents, written_of
from mcp_exec_sandbox.supervisor.event_log import EventLog
from mcp_exec_sandbox.supervisor.job_request import ExecutionRequest
from mcp_exec_sandbox.supervisor.outcome import Interruption, Outcome, Report, Verdict, decide
from mcp_exec_sandbox.supervisor.output_stream import OutputStream
from mcp_exec_sandbox.supervisor.processes import stop_descendants
from mcp_exec_sandbox.supervisor.runner_process import RunnerProcess
from mcp_exec_sandbox.supervisor.settings import MIB
from mcp_exec_sandbox.supervisor.watchdog import Watchdog
from mcp_exec_sandbox.supervisor.wrappers import DISCARD_SECONDS, WrapperStore

MAX_WRITTEN_BYTES = 128 * MIB
"""Output beyond this, of both streams together, ends the run: it would only burn CPU."""

KILL_AFTER_SECONDS = 0.1
"""How long after the end the stopped code is killed: to tear an interpreter down takes CPU that the answer needs."""


class Execution:
    """Runs the job and writes its events."""

    def __init__(
        self,
        *,
        request: ExecutionRequest,
        runner: RunnerProcess,
        log: EventLog,
        watchdog: Watchdog,
        wrappers: WrapperStore,
        grace_seconds: float,
    ) -> None:
        self._request = request
        self._runner = runner
        self._log = log
        self._watchdog = watchdog
        self._wrappers = wrappers
        self._calls = CallEvents(log)
        self._grace_seconds = grace_seconds
        self._over = asyncio.Event()
        self._verdict: Verdict | None = None
        self._report: Report | None = None
        self._interruption = Interruption()
        self._closed = False
        self._streams = {
            1: OutputStream(kind="stdout", limit=request.output_bytes, log=log),
            2: OutputStream(kind="stderr", limit=request.output_bytes, log=log),
        }

    async def run(self) -> None:
        """Run the job to its end, after which none of its code runs; never raises for what the code does."""
        loop = asyncio.get_running_loop()
        self._log.append("status", phase="Running")
        self._runner.listen(self, result_bytes=self._request.output_bytes)
        started = time.perf_counter()
        timer = loop.call_later(self._request.timeout_seconds, self._time_out)
        watch = asyncio.create_task(self._watchdog.watch(self._condemn))
        tidying = asyncio.create_task(self._tidy())
        tools = self._request.tools
        if tools is not None:
            self._wrappers.show(tools.allow)
        try:
            await self._runner.submit(
                code=self._request.code,
                context=self._request.context,
                output_bytes=self._request.output_bytes,
                tools=tools.to_message() if tools is not None else None,
            )
            await self._over.wait()
        finally:
            timer.cancel()
            watch.cancel()
            tidying.cancel()
        elapsed = time.perf_counter() - started
        kernel_kill = self._watchdog.kernel_kill()
        if self._verdict is None and self._report is not None:
            # The code has ended by itself: readers get the end, then what it left behind is stopped.
            self._runner.drain()
            self._finish(run_ms=elapsed * 1000, kernel_kill=kernel_kill)
            await asyncio.sleep(0)
            stop_descendants()
        else:
            self._runner.kill_all()
            self._finish(run_ms=elapsed * 1000, kernel_kill=kernel_kill)

    async def _tidy(self) -> None:
        """Remove the wrappers that the code may not use, unless it ends before; the pod goes with them then."""
        await asyncio.sleep(DISCARD_SECONDS)
        await self._wrappers.discard()

    async def clean_up(self) -> None:
        """End what the code left behind."""
        await asyncio.sleep(KILL_AFTER_SECONDS)
        self._runner.kill_all()

    def cancel(self) -> None:
        """Interrupt the code, and kill it if it doesn't end."""
        self._stop(Verdict(phase="Cancelled", reason="Cancelled", message="the run was cancelled"))

    def on_message(self, message: dict[str, Any]) -> None:
        """A line of the runner, or of code that pretends to be it."""
        if self._over.is_set():
            return
        kind = message.get("type")
        if kind in TOOL_EVENTS:
            self._runner.take_output(written_of(message))
            self._calls.add(kind, message)
            return
        # The interpreter's own word, with a traceback, stands above the bare line.
        if kind == "interrupted" or (kind == "standing" and self._interruption.line is None):
            self._interruption = Interruption.from_message(message)
        elif kind == "done":
            self._report = Report.from_message(message)
            self._over.set()

    def on_output(self, stream: int, data: memoryview) -> None:
        """Output of the code; what comes after the end is nobody's."""
        if self._closed:
            return
        self._streams[stream].write(data)
        if sum(output.total for output in self._streams.values()) > MAX_WRITTEN_BYTES:
            message = f"more than {MAX_WRITTEN_BYTES // MIB} MiB were written to stdout and stderr"
            self._condemn(Verdict(phase="Failed", reason="OutputLimit", message=message))

    def on_exit(self, code: int) -> None:
        """The runner ended by itself."""
        self._over.set()

    def _time_out(self) -> None:
        seconds = self._request.timeout_seconds
        self._stop(Verdict(phase="TimedOut", reason="Timeout", message=f"the code ran longer than {seconds:g} s"))

    def _stop(self, verdict: Verdict) -> None:
        """End the run in a friendly way: the code may still clean up."""
        if self._over.is_set() or self._verdict is not None:
            return
        self._verdict = verdict
        self._runner.interrupt()
        asyncio.get_running_loop().call_later(self._grace_seconds, self._over.set)

    def _condemn(self, verdict: Verdict) -> None:
        """End the run at once."""
        if not self._over.is_set():
            self._verdict = self._verdict or verdict
            self._over.set()

    def _finish(self, *, run_ms: float, kernel_kill: bool) -> None:
        self._closed = True
        for output in self._streams.values():
            output.finish()
        outcome = decide(
            verdict=self._verdict,
            report=self._report,
            runner_exit=self._runner.exit_code,
            kernel_kill=kernel_kill,
            interruption=self._interruption,
        )
        cut = self._emit_result(outcome)
        self._log.append(
            "end",
            phase=outcome.phase,
            reason=outcome.reason,
            error=outcome.error,
            exitCode=outcome.exit_code,
            stdoutBytes=self._streams[1].total,
            stderrBytes=self._streams[2].total,
            truncated=cut or any(output.truncated for output in self._streams.values()),
            runMs=round(run_ms, 3),
            peakMemoryBytes=self._peak_memory(),
        )

    def _emit_result(self, outcome: Outcome) -> bool:
        """Write the `result` event if the run succeeded with one; whether the result was cut."""
        report = self._report
        if outcome.phase != "Succeeded" or report is None or not report.has_value:
            return False
        value, truncated = bounded_result(report.value, self._request.output_bytes)
        self._log.append("result", value=value, truncated=truncated or report.truncated)
        return truncated or report.truncated

    def _peak_memory(self) -> int | None:
        reported = self._report.peak_memory_bytes if self._report else None
        known = [value for value in (reported, self._watchdog.peak_bytes) if value]
        return max(known, default=None)


def bounded_result(value: Any, limit: int) -> tuple[Any, bool]:
    """The result, held to its bound even if the runner didn't, and whether it was cut."""
    with contextlib.suppress(RecursionError, ValueError):
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        if len(text.encode("utf-8", "replace")) <= limit:
            return value, False
        while text and len(json.dumps(text).encode()) > limit:
            text = text[: len(text) // 2]
        return text, True
    return None, True
