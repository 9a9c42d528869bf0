"""One run of the agent's code: evaluate it, turn its end into a report, send the report."""

import asyncio
import contextlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from mcp_exec_sandbox.protocol import ErrorFields, LimitName, encode
from mcp_exec_sandbox.runner import resources
from mcp_exec_sandbox.runner.channel import Channel
from mcp_exec_sandbox.runner.failure import describe_error, describe_stack, find_limit
from mcp_exec_sandbox.runner.interruption import InterruptHandler
from mcp_exec_sandbox.runner.loop import AgentLoop, cancel_tasks
from mcp_exec_sandbox.runner.main_module import create_main_module
from mcp_exec_sandbox.runner.program import RESULT_NAME, RETURN_NAME, Program, TopLevelReturn, compile_program
from mcp_exec_sandbox.runner.result_json import convert_to_json
from mcp_exec_sandbox.runner.streams import StandardStreams
from mcp_exec_sandbox.tools.tool_session import BrokerAccess, ToolSession, set_session

RESULT_VARIABLE = "result"


@dataclass(frozen=True, kw_only=True)
class RunnerJob:
    """The job from the supervisor."""

    code: str
    context: dict[str, Any]
    output_bytes: int
    broker: BrokerAccess | None = None

    @classmethod
    def from_message(cls, message: dict[str, Any]) -> "RunnerJob":
        """Read the job from its message."""
        tools = message.get("tools")
        return cls(
            code=message["code"],
            context=message["context"],
            output_bytes=message["outputBytes"],
            broker=BrokerAccess.from_job(tools) if tools is not None else None,
        )


class JobRunner:
    """Runs one job in the main thread."""

    def __init__(self, *, channel: Channel, loop: AgentLoop, workspace: Path, streams: StandardStreams) -> None:
        self._channel = channel
        self._loop = loop
        self._workspace = workspace
        self._streams = streams
        self._interrupts = InterruptHandler(report=self._send_interruption, loop=loop)
        self._interrupts.install()

    def run(self, job: RunnerJob) -> None:
        """Run the code and send the report. A process that the code forked exits here without a report."""
        sys.argv = ["agent.py"]
        sys.path.insert(0, str(self._workspace))
        set_session(ToolSession(broker=job.broker, emit=self._send_event, workspace=self._workspace))
        module = create_main_module(job.context, self._workspace)
        report = self._build_report(job, module)
        if not self._channel.is_owner():
            self._streams.flush()
            os._exit(report["exitCode"] or int(report["error"] is not None))
        self._streams.flush()
        with contextlib.suppress(OSError):
            self._channel.send(report)

    def warm_up(self) -> None:
        """Run a small job without sending its report, because the first run of any code path is the slowest."""
        main = sys.modules["__main__"]
        job = RunnerJob(code="import json\n[1, 'a', {'b': 1.5}]", context={}, output_bytes=1024)
        encode(self._build_report(job, create_main_module(job.context, self._workspace)))
        sys.modules["__main__"] = main

    def _build_report(self, job: RunnerJob, module: ModuleType) -> dict[str, Any]:
        try:
            self._interrupts.arm()
            try:
                report = _report_success(self._evaluate(job, module), job.output_bytes)
            except SystemExit as request:
                report = self._report_exit(request)
            except BaseException as error:
                report = self._report_failure(error)
            self._interrupts.disarm()
            return report
        except BaseException as error:
            # An interrupt or a lack of memory while the report was being built.
            self._interrupts.disarm()
            return _build_message(error=_describe_minimally(error), limit=find_limit(error))

    def _evaluate(self, job: RunnerJob, module: ModuleType) -> Any:
        original = job.context.get(RESULT_VARIABLE)
        try:
            program = compile_program(job.code)
            if RETURN_NAME in program.code.co_names:
                module.__dict__[RETURN_NAME] = TopLevelReturn
            value = self._run_program(program, module.__dict__)
            if value is None and (variable := module.__dict__.get(RESULT_VARIABLE)) is not original:
                value = self._await_value(variable)
            return value
        finally:
            cancel_tasks(self._loop, asyncio.all_tasks(self._loop))

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
        return self._await_value(namespace.pop(RESULT_NAME, None))

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
        error = describe_error(request, self._workspace) if status else None
        return _build_message(error=error, exit_code=status)

    def _report_failure(self, error: BaseException) -> dict[str, Any]:
        limit = find_limit(error)
        if limit == "memory":
            resources.release_reserve()
        return _build_message(error=describe_error(error, self._workspace), limit=limit)

    def _send_interruption(self, frames: list[FrameType]) -> None:
        line, text = describe_stack(frames, self._workspace)
        with contextlib.suppress(OSError):
            self._channel.send({"type": "interrupted", "line": line, "traceback": text})

    def _send_event(self, event: dict[str, Any]) -> None:
        """Send an event of a tool call after the output that the code printed before."""
        self._streams.flush()
        with contextlib.suppress(OSError):
            self._channel.send({**event, "written": self._streams.count_written()})


def _report_success(value: Any, limit: int) -> dict[str, Any]:
    if value is None:
        return _build_message()
    result = convert_to_json(value, limit)
    return {**_build_message(), "hasValue": True, "value": result.value, "truncated": result.truncated}


def _build_message(
    *, error: ErrorFields | None = None, exit_code: int | None = None, limit: LimitName | None = None
) -> dict[str, Any]:
    """Build the message `done`."""
    return {
        "type": "done",
        "hasValue": False,
        "value": None,
        "truncated": False,
        "error": error,
        "exitCode": exit_code,
        "limit": limit,
        "peakMemoryBytes": resources.read_peak_bytes(),
    }


def _describe_minimally(error: BaseException) -> ErrorFields:
    """Describe an error without calling its own code."""
    return ErrorFields(type=type(error).__name__, message="the failure could not be described", line=None, traceback="")


async def _execute(program: Program, namespace: dict[str, Any]) -> None:
    exec(program.code, namespace)  # noqa: S102 - the product's purpose


async def _await_once(value: Any) -> Any:
    return await value
