"""Runs of the agent's code: evaluate it, turn its end into a report, send the report. Sessions have several."""

import asyncio
import contextlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from mcp_exec_sandbox.protocol import AGENT_FILE, ENDED, Notes, encode
from mcp_exec_sandbox.runner import limits
from mcp_exec_sandbox.runner.ending import InterpreterEnd
from mcp_exec_sandbox.runner.loop import AgentLoop, InterruptHandler, cancel_tasks, install_loop
from mcp_exec_sandbox.runner.mistakes.ignored import IgnoredErrors
from mcp_exec_sandbox.runner.mistakes.not_awaited import NotAwaited
from mcp_exec_sandbox.runner.program import (
    RESULT_NAME,
    RETURN_NAME,
    Program,
    TopLevelReturn,
    assigns,
    compile_program,
    create_main_module,
    forget_source,
    link_source,
    register,
    renew_main_module,
)
from mcp_exec_sandbox.runner.report import (
    describe_error,
    describe_minimally,
    describe_stack,
    find_limit,
    report_end,
    report_success,
)
from mcp_exec_sandbox.runner.streams import Channel, StandardStreams
from mcp_exec_sandbox.skills import SkillStore, install_skills, set_store
from mcp_exec_sandbox.tools.connection import BrokerAccess
from mcp_exec_sandbox.tools.display.show import ArtifactWriter, set_writer
from mcp_exec_sandbox.tools.libraries import find_hints, list_causes, set_libraries
from mcp_exec_sandbox.tools.network import forget_attempts, write_attempts
from mcp_exec_sandbox.tools.progress import ProgressReporter, set_reporter
from mcp_exec_sandbox.tools.tool_session import ToolSession, set_session

RESULT_VARIABLE = "result"
KEPT_SOURCES = 50
"""Jobs of a session whose source lines are kept for tracebacks."""


@dataclass(frozen=True, kw_only=True)
class RunnerJob:
    """The job from the supervisor."""

    code: str
    context: dict[str, Any]
    output_bytes: int
    broker: BrokerAccess | None = None
    servers: list[str] | None = None
    """Names of the servers that the code may use; None if the supervisor has no wrappers of any."""
    session: bool = False
    """Whether the interpreter stays for another job."""
    skills: dict[str, Any] | None = None
    libraries: dict[str, Any] | None = None
    """Which pools have libraries that this one may lack."""

    @classmethod
    def from_message(cls, message: dict[str, Any]) -> "RunnerJob":
        """Read the job from its message."""
        tools = message.get("tools")
        return cls(
            code=message["code"],
            context=message["context"],
            output_bytes=message["outputBytes"],
            broker=BrokerAccess.from_job(tools) if tools is not None else None,
            servers=message.get("servers"),
            session=message.get("session") is True,
            skills=message.get("skills"),
            libraries=message.get("libraries"),
        )


class JobRunner:
    """Runs jobs in the main thread: one, or those of a session in one `__main__`."""

    def __init__(self, *, channel: Channel, loop: AgentLoop, workspace: Path, streams: StandardStreams) -> None:
        self._channel = channel
        self._loop = loop
        self._workspace = workspace
        self._streams = streams
        self._interrupts = InterruptHandler(report=self._send_interruption, loop=loop)
        self._interrupts.install()
        self._module: ModuleType | None = None
        self._jobs = 0
        self._file = AGENT_FILE
        self._artifacts = ArtifactWriter(workspace=workspace, emit=lambda event: None)
        self._notes = Notes()
        self._end = InterpreterEnd(interrupts=self._interrupts, workspace=workspace)
        self._not_awaited = NotAwaited(workspace)
        self._ignored = IgnoredErrors(workspace)

    def prepare(self) -> None:
        """Note the state of the interpreter. Call it last, before the job arrives."""
        self._end.prepare()

    def run(self, job: RunnerJob) -> None:
        """Run the code and send the report. A process that the code forked exits here without a report."""
        allow = job.broker.allow if job.broker is not None else ()
        skills = SkillStore.from_job(job.skills, allow=allow, emit=self._send_event)
        set_store(skills)
        set_session(
            ToolSession(
                broker=job.broker,
                emit=self._send_event,
                workspace=self._workspace,
                skills=skills.catalog,
                servers=job.servers,
                note=self._add_tool_note,
            )
        )
        install_skills(self._workspace)
        set_libraries(job.libraries or {})
        forget_attempts([] if job.broker is None else [(job.broker.host, job.broker.port)])
        self._notes = Notes()
        progress = ProgressReporter(self._send_event)
        set_reporter(progress)
        self._artifacts = ArtifactWriter(workspace=self._workspace, emit=self._send_event)
        set_writer(self._artifacts)
        self._ignored.begin(self._notes)
        self._not_awaited.begin(job.code, is_first=self._jobs == 0)
        report = self._build_report(job, self._prepare_module(job))
        progress.flush()
        is_child = not self._channel.is_owner()
        if is_child and report["error"] is not None and not report["exitCode"]:
            sys.stderr.write(report["error"]["traceback"])
        has_modules = self._end.has_modules()
        if job.session and not is_child:
            self._end.flush(notes=self._notes)
        else:
            report = self._end_interpreter(job, report)
            progress.flush()
        if not is_child:
            write_attempts(self._notes, known=report["error"]["message"] if report["error"] is not None else "")
            self._not_awaited.finish(self._notes, has_modules=has_modules, stays=job.session)
        self._streams.flush()
        if is_child:
            os._exit(report["exitCode"] or int(report["error"] is not None))
        with contextlib.suppress(OSError):
            self._channel.send({**report, "notes": self._notes.to_message()})

    def _add_tool_note(self, tool: str, text: str) -> None:
        self._notes.add("ValueChanged", text, path=tool)

    def _end_interpreter(self, job: RunnerJob, report: dict[str, Any]) -> dict[str, Any]:
        """Do what Python does at its exit, and return the complete report."""
        is_idle = not self._end.has_work(job.code)
        if not is_idle and not self._interrupts.was_requested and self._channel.is_owner():
            # If the end takes longer than the code may run, the supervisor has the result of the code.
            self._streams.flush()
            with contextlib.suppress(OSError):
                self._channel.send({**report, "type": ENDED})
        self._end.finish(
            notes=self._notes,
            is_idle=is_idle,
            close=self._close_generators,
            forget=self._forget_module,
            show=self._show_figures,
        )
        if self._end.failure is not None and report["error"] is None and find_limit(self._end.failure) is not None:
            return self._report_failure(self._end.failure, job)
        return report if self._end.left is None else {**report, "left": self._end.left}

    def _close_generators(self) -> None:
        if not self._loop.is_closed() and not self._loop.is_running():
            self._loop.close_generators()

    def _forget_module(self) -> None:
        self._module = None

    def _prepare_module(self, job: RunnerJob) -> ModuleType:
        """Return the module that the code runs in: a new one, or that of the session's earlier jobs."""
        self._jobs += 1
        sys.argv = ["agent.py"]
        if self._module is None:
            sys.path.insert(0, str(self._workspace))
            self._module = create_main_module(job.context, self._workspace)
            return self._module
        # What an earlier job may have changed and the report of this one needs. Nothing else is set back.
        if self._loop.is_closed():
            self._loop = AgentLoop()
            install_loop(self._loop)
            self._interrupts = InterruptHandler(report=self._send_interruption, loop=self._loop)
        asyncio.set_event_loop(self._loop)
        self._streams.install()
        self._interrupts.install()
        limits.restore_limits()
        forget_source(_name_file(self._jobs - KEPT_SOURCES))
        self._file = _name_file(self._jobs)
        renew_main_module(self._module, job.context)
        return self._module

    def warm_up(self) -> None:
        """Run a small job without sending its report, because the first run of any code path is the slowest."""
        main = sys.modules["__main__"]
        job = RunnerJob(code="import json\n[1, 'a', {'b': 1.5}]", context={}, output_bytes=1024)
        encode(self._build_report(job, create_main_module(job.context, self._workspace)))
        register(main)

    def _build_report(self, job: RunnerJob, module: ModuleType) -> dict[str, Any]:
        try:
            self._interrupts.arm()
            try:
                report = report_success(self._evaluate(job, module), job.output_bytes, notes=self._notes)
            except SystemExit as request:
                report = self._report_exit(request)
            except BaseException as error:
                report = self._report_failure(error, job)
            self._show_figures()
            self._interrupts.disarm()
            return report
        except BaseException as error:
            # An interrupt or a lack of memory while the report was being built.
            self._interrupts.disarm()
            return report_end(error=describe_minimally(error), limit=find_limit(error))

    def _show_figures(self) -> None:
        """Show open figures. What fails is reported on stderr, because the code has ended."""
        try:
            self._artifacts.show_open_figures()
        except Exception as error:
            with contextlib.suppress(Exception):
                sys.stderr.write(f"mcp-exec: open figures were not shown: {type(error).__name__}: {error}\n")

    def _evaluate(self, job: RunnerJob, module: ModuleType) -> Any:
        original = module.__dict__.get(RESULT_VARIABLE)
        self._loop.before_cancel = self._not_awaited.add_tasks
        try:
            program = compile_program(job.code, file=self._file)
            for change in program.changes:
                self._notes.add("CodeChanged", change)
            link_source(module, self._file, job=self._jobs)
            if RETURN_NAME in program.code.co_names:
                module.__dict__[RETURN_NAME] = TopLevelReturn
            value = self._run_program(program, module.__dict__)
            if value is None:
                variable = module.__dict__.get(RESULT_VARIABLE)
                if variable is not original or (self._jobs > 1 and assigns(program, RESULT_VARIABLE)):
                    value = self._await_value(variable)
            return value
        finally:
            cancel_tasks(self._loop, asyncio.all_tasks(self._loop))
            if self._not_awaited.may_exist or self._end.has_modules():
                self._ignored.add_kept(stays=job.session)

    def _run_program(self, program: Program, namespace: dict[str, Any]) -> Any:
        try:
            if program.is_coroutine:
                self._loop.run_until_complete(eval(program.code, namespace))
            elif program.needs_loop:
                self._loop.run_until_complete(_execute(program, namespace))
            else:
                exec(program.code, namespace)  # noqa: S102 - the product's purpose
        except TopLevelReturn as returned:
            return self._await_value(returned.value)
        value = self._await_value(namespace.pop(RESULT_NAME, None))
        if program.is_silent and value is not None:
            self._notes.add("ValueChanged", "The last line ends with a semicolon, so its value is not the result.")
            return None
        return value

    def _await_value(self, value: Any) -> Any:
        """Return the value, awaited if the code forgot to."""
        if not hasattr(type(value), "__await__"):
            return value
        return self._loop.run_until_complete(_await_once(value))

    def _report_exit(self, request: SystemExit) -> dict[str, Any]:
        code = request.code
        if code is None or isinstance(code, int):
            status = int(code or 0) & 0xFF if isinstance(code, int) else 0
        else:
            with contextlib.suppress(Exception):
                sys.stderr.write(f"{code}\n")
            status = 1
        error = describe_error(request, self._workspace, file=self._file) if status else None
        return report_end(error=error, exit_code=status)

    def _report_failure(self, error: BaseException, job: RunnerJob) -> dict[str, Any]:
        limit = find_limit(error)
        if limit == "memory":
            limits.release_reserve()
        self._not_awaited.explain(error)
        if any(isinstance(each, NameError) for each in list_causes(error)):
            # Imported for the answer, not in every idle sandbox.
            from mcp_exec_sandbox.runner.mistakes.undefined import explain_undefined

            with contextlib.suppress(Exception):  # the code may have changed what the answer is made of
                explain_undefined(error, self._workspace, keeps_variables=job.session)
        described = describe_error(error, self._workspace, file=self._file, hints=find_hints(error))
        return report_end(error=described, limit=limit)

    def _send_interruption(self, frames: list[FrameType]) -> None:
        line, text = describe_stack(frames, self._workspace, file=self._file)
        with contextlib.suppress(OSError):
            self._channel.send({"type": "interrupted", "line": line, "traceback": text})

    def _send_event(self, event: dict[str, Any]) -> None:
        """Send an event of a tool call, or progress, after the output that the code printed before."""
        self._streams.flush()
        with contextlib.suppress(OSError):
            self._channel.send({**event, "written": self._streams.count_written()})


def _name_file(job: int) -> str:
    """Return the file name of the code of a session's job: functions of an earlier one keep their own lines."""
    return AGENT_FILE if job == 1 else f"{AGENT_FILE.rstrip('>')} {job}>"


async def _execute(program: Program, namespace: dict[str, Any]) -> None:
    exec(program.code, namespace)  # noqa: S102 - the product's purpose


async def _await_once(value: Any) -> Any:
    return await value
