"""Run of the code, from the job that the runner gets to the event `end`.

Only the supervisor decides that a run timed out, was cancelled or exceeded a limit. No message of the runner changes
that, because the agent's code may have sent it.
"""

import asyncio
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from mcp_exec_sandbox.protocol import (
    ARTIFACT_EVENT,
    ENDED,
    PROGRESS_EVENT,
    SEARCH,
    SKILL_EVENT,
    TOOL_EVENTS,
    NoteFields,
    Notes,
)
from mcp_exec_sandbox.supervisor.execution.events import EventLog, ProgressEvents, ToolCallEvents, parse_written
from mcp_exec_sandbox.supervisor.execution.job_request import ExecutionRequest, SkillEvents
from mcp_exec_sandbox.supervisor.execution.outcome import (
    InterruptLocation,
    Reason,
    RunnerReport,
    RunOutcome,
    SupervisorDecision,
    decide_outcome,
    explain_decision,
)
from mcp_exec_sandbox.supervisor.execution.output import MAX_WRITTEN_BYTES, RunOutput
from mcp_exec_sandbox.supervisor.execution.runner_process import RunnerProcess
from mcp_exec_sandbox.supervisor.execution.searches import ToolSearches
from mcp_exec_sandbox.supervisor.execution.watchdog import RunClock, Watchdog
from mcp_exec_sandbox.supervisor.files.run_files import RunFiles
from mcp_exec_sandbox.supervisor.resources.processes import kill_descendants, stop_descendants, wait_until_stopped
from mcp_exec_sandbox.supervisor.resources.usage import CpuMeter
from mcp_exec_sandbox.supervisor.settings import MIB, log_failure
from mcp_exec_sandbox.supervisor.wrapper_store import DISCARD_SECONDS, WrapperStore
from mcp_exec_tools.text import shorten_json

LONG_RUN_SECONDS = 1.0
"""Runs longer than this have the CPU time of all processes read at their end, which takes up to a millisecond."""
KILL_AFTER_SECONDS = 0.1
"""Time between the end and the kill of the stopped code: the teardown of an interpreter takes CPU that the answer
needs."""
_KEEPING_NOTHING = ("Cancelled", "IsolationLost")
"""Reasons of the supervisor's decisions that make a run keep no artifacts."""
_HARMLESS: frozenset[Reason] = frozenset({"", "UserError", "ExitCode", "WorkspaceUnavailable", "Timeout", "Cancelled"})
"""Reasons that allow a sandbox to be used again."""
_SUPERVISOR_FAILED = SupervisorDecision(
    phase="Failed", reason="RunnerDied", message="the supervisor failed during the run; see the log of the sandbox"
)


class RunMessages:
    """What messages of the code bring about: events, which are checked and copied to the log, and searches."""

    def __init__(self, *, request: ExecutionRequest, runner: RunnerProcess, log: EventLog) -> None:
        self.tool_calls = ToolCallEvents(log)
        self.progress = ProgressEvents(log)
        self.skills = SkillEvents(log)
        setup = {
            "allow": [] if request.tools is None else list(request.tools.allow),
            "skills": [] if request.skills is None else request.skills.catalog,
        }
        self.searches = ToolSearches(runner=runner, setup=setup)


class CodeRun:
    """Runs the job and writes its events."""

    def __init__(
        self,
        *,
        request: ExecutionRequest,
        runner: RunnerProcess,
        log: EventLog,
        watchdog: Watchdog,
        wrappers: WrapperStore,
        files: RunFiles,
        grace_seconds: float,
        template: Collection[int] = (),
        runner_cpu_seconds: float | None = None,
    ) -> None:
        """Prepare. `template` is the pid of the runner's template, if it has one, which is not killed with the code.

        `runner_cpu_seconds` is what the interpreter of a session had used at the end of its last run.
        """
        self._request = request
        self._runner = runner
        self._log = log
        self._watchdog = watchdog
        self._wrappers = wrappers
        self._files = files
        self._messages = RunMessages(request=request, runner=runner, log=log)
        self._output = RunOutput(limit=request.output_bytes, log=log)
        self._grace_seconds = grace_seconds
        self._clock = RunClock(timeout_seconds=request.timeout_seconds, on_timeout=self._time_out)
        self._over = asyncio.Event()
        self._decision: SupervisorDecision | None = None
        self._report: RunnerReport | None = None
        self._early_report: RunnerReport | None = None
        """The report of code that has ended, while its threads, exit handlers or files still take time."""
        self._interruption = InterruptLocation()
        self._template = template
        self._has_started = False
        self._cpu = CpuMeter(find_runner=lambda: runner.pid, runner_seconds=runner_cpu_seconds)
        self.reason: Reason = "RunnerDied"
        """Reason of the outcome, once the run has ended."""
        self._cpu_seconds: float | None = None

    async def run(self) -> None:
        """Run the job to its end; none of its code runs afterwards.

        The event `end` is always written, exactly once and last, unless the task is cancelled. Timer and watchdog are
        active until then. Never raises, whatever the code does.
        """
        if self._files.has_workspace and not await self._place_files():
            # its end after this run is no death before its job, which would end the sandbox
            self._runner.listen(self, result_bytes=0)
            self._finish(run_ms=0.0)
            return
        started = time.perf_counter()
        tasks = self._start_code()
        is_unasked = False
        try:
            await self._over.wait()
            elapsed = time.perf_counter() - started
            is_unasked = self._decision is None and self._report is not None
            # The order matters. Code that is ended is stopped first: it uses no more CPU time then, and can still
            # be measured; it is killed after that. Files are saved while nothing can change them, and before the event
            # `end`, which names what was saved. What is left of code that came to its own end is stopped after `end`,
            # which that would delay. The watchdog ends last, because `end` has its numbers. A failure on the way still
            # kills.
            self._end_code(is_unasked=is_unasked, elapsed=elapsed)
            await self._save_files(may_save=is_unasked or self._has_ended_late)
            self._finish(run_ms=elapsed * 1000)
        finally:
            if not is_unasked:
                kill_descendants(spare=self._find_spared())
            self._clock.stop()
            self._messages.searches.stop()
            for task in tasks:
                task.cancel()
        if is_unasked:
            await asyncio.sleep(0)
            stop_descendants()

    def _start_code(self) -> list[asyncio.Task[None]]:
        """Send the job to the runner. Return the tasks that end with the run."""
        self._has_started = True
        if self._request.session:
            self._runner.resume()
        self._log.append("status", phase="Running")
        self._runner.listen(self, result_bytes=self._request.output_bytes)
        self._clock.start()
        allow = () if self._request.tools is None else self._request.tools.allow
        if self._request.tools is not None:
            self._wrappers.show(allow)
        submission = self._runner.send({**self._request.to_message(), "servers": self._wrappers.list_servers(allow)})
        needed = [asyncio.create_task(task) for task in (submission, self._watchdog.watch(self.end_now))]
        for task in needed:
            task.add_done_callback(self._end_on_failure)
        return [*needed, asyncio.create_task(self._remove_wrappers())]

    def _end_code(self, *, is_unasked: bool, elapsed: float) -> None:
        """Stop code that did not come to its own end, read the CPU time, and kill what was stopped."""
        if is_unasked:
            self._measure_cpu(all_processes=elapsed > LONG_RUN_SECONDS)
            return
        stop_descendants()
        self._measure_cpu(all_processes=True)
        kill_descendants(spare=self._find_spared())

    async def _place_files(self) -> bool:
        """Put the workspace's files in place. Return whether the code can start now."""
        problem = await self._files.place()
        if problem and self._decision is None:
            self._decision = SupervisorDecision(phase="Failed", reason="WorkspaceUnavailable", message=problem)
        return self._decision is None

    async def _save_files(self, *, may_save: bool) -> None:
        """Save what the run has left. Only if the code came to its own end, its workspace is whole."""
        keeps_artifacts = self._decision is None or self._decision.reason not in _KEEPING_NOTHING
        if self._files.has_work(may_save=may_save, keeps_artifacts=keeps_artifacts):
            self._clock.stop()
            stop_descendants()
            await wait_until_stopped()
        await self._files.finish(may_save=may_save, keeps_artifacts=keeps_artifacts)

    @property
    def _has_ended_late(self) -> bool:
        """Whether the code came to its own end, but what it left ran longer than its time limit."""
        is_timeout = self._decision is not None and self._decision.reason == "Timeout"
        return is_timeout and self._early_report is not None

    @property
    def keeps_interpreter(self) -> bool:
        """Whether the interpreter can run the next job of its session: it reported its end, asked or not."""
        is_intact = self._decision is None or self._decision.reason in ("Timeout", "Cancelled")
        is_alive = self._report is not None and self._runner.exit_code is None
        return self._request.session and ((is_intact and is_alive) or not self._has_started)

    @property
    def has_breached(self) -> bool:
        """Whether a limit was exceeded, or something happened that no code should bring about."""
        return self.reason not in _HARMLESS or self._watchdog.has_kernel_kill()

    @property
    def runner_cpu_seconds(self) -> float:
        """CPU time that the interpreter had used in all, when it was measured last."""
        return self._cpu.runner_seconds

    def _find_spared(self) -> set[int]:
        """Return the processes that outlive the run."""
        return {*self._template, *([self._runner.pid] if self.keeps_interpreter else [])}

    def _measure_cpu(self, *, all_processes: bool) -> None:
        try:
            self._cpu_seconds = self._cpu.measure(all_processes=all_processes)
        except Exception as error:  # the run ends without this number
            log_failure("the CPU time of the run could not be read", error)

    def _end_on_failure(self, task: asyncio.Task[None]) -> None:
        """End the run if the job was not sent, or if its limits are not watched any more."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log_failure("a task of the run failed", error)
            self.end_now(_SUPERVISOR_FAILED)

    async def _remove_wrappers(self) -> None:
        """Remove the wrappers that the code may not use. If the run ends earlier, they vanish with the pod."""
        await asyncio.sleep(DISCARD_SECONDS)
        await self._wrappers.discard()

    async def clean_up(self) -> None:
        """Kill the code's remaining processes."""
        await asyncio.sleep(KILL_AFTER_SECONDS)
        kill_descendants(spare=self._template)

    def cancel(self) -> None:
        """Interrupt the code, and kill it if it doesn't end."""
        self._interrupt(SupervisorDecision(phase="Cancelled", reason="Cancelled", message="the run was cancelled"))

    def extend(self, seconds: float) -> None:
        """Let the code run so many seconds longer than its time limit, in all."""
        self._clock.extend(seconds)

    def on_message(self, message: dict[str, Any]) -> None:
        """Handle a line of the runner, or of code that imitates it."""
        if self._over.is_set():
            return
        kind = message.get("type")
        if kind in TOOL_EVENTS:
            self._runner.take_output(parse_written(message))
            if self._messages.tool_calls.add(kind, message) and kind == "approval":
                self._clock.expect_extension()
        elif kind == PROGRESS_EVENT:
            self._runner.take_output(parse_written(message))
            self._messages.progress.add(message)
        elif kind == ARTIFACT_EVENT:
            self._runner.take_output(parse_written(message))
            self._files.show(message)
        elif kind in (SKILL_EVENT, SEARCH):
            (self._messages.skills if kind == SKILL_EVENT else self._messages.searches).add(message)
        elif kind == "done":
            self._report = RunnerReport.from_message(message)
            self._over.set()
        elif kind == ENDED and self._decision is None:
            self._early_report = RunnerReport.from_message(message)
        elif kind in ("interrupted", "stack", "deep"):
            self._note_location(kind, message)

    def _note_location(self, kind: str, message: dict[str, Any]) -> None:
        """Note where interrupted or crashed code was."""
        # The runner's own message, which has a traceback, overrides the bare line of a stack.
        if kind == "interrupted" or (kind == "stack" and self._interruption.line is None):
            self._interruption = InterruptLocation.from_message(message)
        elif kind == "deep":
            self._interruption = replace(self._interruption, is_deep=True)

    def on_output(self, stream: int, data: memoryview) -> None:
        """Add output of the code. Output after the end is dropped."""
        if not self._output.write(stream, data):
            self._end_flood("stdout and stderr")

    def on_control(self, size: int) -> None:
        """Count bytes of the control channel, which code can write to as well."""
        if not self._output.count_control(size):
            self._end_flood("the control channel of the sandbox")

    def on_exit(self, code: int) -> None:
        """Handle the unasked end of the runner."""
        self._over.set()

    def _end_flood(self, name: str) -> None:
        message = f"more than {MAX_WRITTEN_BYTES // MIB} MiB were written to {name}"
        self.end_now(SupervisorDecision(phase="Failed", reason="OutputLimit", message=message))

    def _time_out(self) -> None:
        message = f"the code ran longer than {self._request.timeout_seconds:g} s"
        if self._clock.extension_seconds:
            message += f", without the {self._clock.extension_seconds:.1f} s that a call waited for an approval"
        self._interrupt(SupervisorDecision(phase="TimedOut", reason="Timeout", message=message))

    def _interrupt(self, decision: SupervisorDecision) -> None:
        """End the run with time for the code to clean up."""
        if self._over.is_set() or self._decision is not None:
            return
        self._decision = decision
        if self._files.is_placing:
            self._files.cancel()
            return
        self._runner.interrupt()
        asyncio.get_running_loop().call_later(self._grace_seconds, self._over.set)

    def end_now(self, decision: SupervisorDecision) -> None:
        """End the run at once."""
        if not self._over.is_set():
            self._decision = self._decision or decision
            self._over.set()
            if self._files.is_placing:
                self._files.cancel()

    def _finish(self, *, run_ms: float) -> None:
        """Write the last output, the result and the event `end`, whatever the code has sent."""
        try:
            self._runner.drain_output()
            self._output.finish()
            self._messages.progress.finish()
            if self._has_ended_late:
                self._report = self._report or self._early_report
            outcome = decide_outcome(
                decision=self._decision,
                ended_late=self._has_ended_late,
                report=self._report,
                runner_exit=self._runner.exit_code,
                kernel_kill=self._watchdog.has_kernel_kill(),
                interruption=self._interruption,
                limits=self._watchdog.describe_limits(),
                language=self._runner.language,
            )
            self._write_end(outcome, is_cut=self._write_result(outcome), run_ms=run_ms)
        except Exception as error:
            log_failure("the outcome of the run could not be read", error)
            self._output.close()
            decision = self._decision or _SUPERVISOR_FAILED
            self._write_end(explain_decision(decision, InterruptLocation()), is_cut=True, run_ms=run_ms)

    def _collect_notes(self, *, is_cut: bool) -> Sequence[NoteFields]:
        """Return the supervisor's notes, then the runner's, so that forged ones displace none."""
        notes = Notes()
        for output in self._output.streams:
            if output.truncated:
                notes.add("OutputCut", output.describe_cut(), path=output.kind)
            if output.was_redrawn:
                notes.add("OutputCut", "Lines that were redrawn are here in their last state.", path=output.kind)
        for text in self._files.report.notes:
            notes.add("FileNotKept", text)
        reported = self._report.notes if self._report else ()
        for note in reported:
            notes.add(note["kind"], note["message"], path=note["path"])
        if is_cut and not any(note["kind"] == "OutputCut" for note in reported):
            notes.add("OutputCut", f"The result has more than {self._request.output_bytes} bytes.", path="result")
        return notes.to_message()

    def _write_end(self, outcome: RunOutcome, *, is_cut: bool, run_ms: float) -> None:
        self.reason = outcome.reason
        for artifact in self._files.report.artifacts:
            self._log.append("artifact", **artifact)
        self._log.append(
            "end",
            phase=outcome.phase,
            reason=outcome.reason,
            error=outcome.error,
            exitCode=outcome.exit_code,
            stdoutBytes=self._output.stdout.total,
            stderrBytes=self._output.stderr.total,
            truncated=is_cut or self._output.truncated,
            runMs=round(run_ms, 3),
            peakMemoryBytes=self._find_peak_memory(),
            cpuSeconds=None if self._cpu_seconds is None else round(self._cpu_seconds, 6),
            **({} if self._files.report.workspace is None else {"workspace": self._files.report.workspace}),
            **({"notes": notes} if (notes := self._collect_notes(is_cut=is_cut)) else {}),
        )

    def _write_result(self, outcome: RunOutcome) -> bool:
        """Write the event `result` if the code came to its end with one. Return whether the result was cut."""
        report = self._report
        has_ended = outcome.phase == "Succeeded" or self._has_ended_late
        if not has_ended or report is None or not report.has_value:
            return False
        # Bounded again here, because the agent's code may have sent the report.
        value, truncated = shorten_json(report.value, self._request.output_bytes)
        self._log.append("result", value=value, truncated=truncated or report.truncated)
        return truncated or report.truncated

    def _find_peak_memory(self) -> int | None:
        reported = self._report.peak_memory_bytes if self._report else None
        return max((size for size in (reported, self._watchdog.peak_bytes) if size), default=None)
