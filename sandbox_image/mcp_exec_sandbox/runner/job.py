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
from mcp_exec_sandbox.runner.failure import describe, describe_stack, limit_behind
from mcp_exec_sandbox.runner.interruption import Interruption
from mcp_exec_sandbox.runner.loop import AgentLoop, wind_down
from mcp_exec_sandbox.runner.main_module import make_main_module
from mcp_exec_sandbox.runner.program import RESULT_NAME, RETURN_NAME, Program, Returned, compile_program
from mcp_exec_sandbox.runner.result_json import to_json
from mcp_exec_sandbox.runner.streams import Streams
from mcp_exec_sandbox.tools.tool_session import Grant, Session, begin

RESULT_VARIABLE = "result"


@dataclass(frozen=True, kw_only=True)
class Job:
    """What the supervisor asks for."""

    code: str
    context: dict[str, Any]
    output_bytes: int
    grant: Grant | None = None

    @classmethod
    def from_message(cls, message: dict[str, Any]) -> "Job":
        """The job of a channel message."""
        tools = message.get("tools")
        return cls(
            code=message["code"],
            context=message["context"],
            output_bytes=message["outputBytes"],
            grant=Grant.from_job(tools) if tools is not None else None,
        )


class Runner:
    """Runs one job in the main thread."""

    def __init__(self, *, channel: Channel, loop: AgentLoop, workspace: Path, streams: Streams) -> None:
        self._channel = channel
        self._loop = loop
        self._workspace = workspace
        self._streams = streams
        self._interruption = Interruption(report=self._tell_interruption, loop=loop)
        self._interruption.install()

    def run(self, job: Job) -> None:
        """Run the code and report; a process that the code forked ends here without a word."""
        sys.argv = ["agent.py"]
        sys.path.insert(0, str(self._workspace))
        begin(Session(grant=job.grant, emit=self._tell_event, workspace=self._workspace))
        module = make_main_module(job.context, self._workspace)
        report = self._report(job, module)
        if not self._channel.is_own():
            self._streams.flush()
            os._exit(report["exitCode"] or int(report["error"] is not None))
        self._streams.flush()
        with contextlib.suppress(OSError):
            self._channel.send(report)

    def rehearse(self) -> None:
        """Run a small job without telling anyone: the first run of any code path is the slowest."""
        main = sys.modules["__main__"]
        job = Job(code="import json\n[1, 'a', {'b': 1.5}]", context={}, output_bytes=1024)
        encode(self._report(job, make_main_module(job.context, self._workspace)))
        sys.modules["__main__"] = main

    def _report(self, job: Job, module: ModuleType) -> dict[str, Any]:
        try:
            self._interruption.arm()
            try:
                report = _success(self._evaluate(job, module), job.output_bytes)
            except SystemExit as request:
                report = self._exit(request)
            except BaseException as error:
                report = self._failure(error)
            self._interruption.disarm()
            return report
        except BaseException as error:
            # An interrupt, or want of memory, while the end was being put into words.
            self._interruption.disarm()
            return _message(error=_bare(error), limit=limit_behind(error))

    def _evaluate(self, job: Job, module: ModuleType) -> Any:
        given = job.context.get(RESULT_VARIABLE)
        try:
            program = compile_program(job.code)
            if RETURN_NAME in program.code.co_names:
                module.__dict__[RETURN_NAME] = Returned
            value = self._run_program(program, module.__dict__)
            if value is None and (variable := module.__dict__.get(RESULT_VARIABLE)) is not given:
                value = self._settle(variable)
            return value
        finally:
            wind_down(self._loop, asyncio.all_tasks(self._loop))

    def _run_program(self, program: Program, namespace: dict[str, Any]) -> Any:
        try:
            if program.is_coroutine:
                self._loop.run_until_complete(eval(program.code, namespace))
            elif program.needs_loop:
                self._loop.run_until_complete(_call(program, namespace))
            else:
                exec(program.code, namespace)  # noqa: S102 - the product's purpose
        except Returned as returned:
            return self._settle(returned.value)
        return self._settle(namespace.pop(RESULT_NAME, None))

    def _settle(self, value: Any) -> Any:
        """The value, awaited where the code forgot to."""
        if not hasattr(type(value), "__await__"):
            return value
        return self._loop.run_until_complete(_awaited(value))

    def _exit(self, request: SystemExit) -> dict[str, Any]:
        code = request.code
        if code is None or isinstance(code, int):
            status = int(code or 0) & 0xFF if isinstance(code, int) else 0
        else:
            with contextlib.suppress(Exception):
                sys.stderr.write(f"{code}\n")
            status = 1
        error = describe(request, self._workspace) if status else None
        return _message(error=error, exit_code=status)

    def _failure(self, error: BaseException) -> dict[str, Any]:
        limit = limit_behind(error)
        if limit == "memory":
            resources.release_reserve()
        return _message(error=describe(error, self._workspace), limit=limit)

    def _tell_interruption(self, frames: list[FrameType]) -> None:
        line, text = describe_stack(frames, self._workspace)
        with contextlib.suppress(OSError):
            self._channel.send({"type": "interrupted", "line": line, "traceback": text})

    def _tell_event(self, event: dict[str, Any]) -> None:
        """Tell of a tool call; the text that the code printed before comes before it."""
        self._streams.flush()
        with contextlib.suppress(OSError):
            self._channel.send({**event, "written": self._streams.written()})


def _success(value: Any, limit: int) -> dict[str, Any]:
    if value is None:
        return _message()
    converted = to_json(value, limit)
    return {**_message(), "hasValue": True, "value": converted.value, "truncated": converted.truncated}


def _message(
    *, error: ErrorFields | None = None, exit_code: int | None = None, limit: LimitName | None = None
) -> dict[str, Any]:
    """The `done` line."""
    return {
        "type": "done",
        "hasValue": False,
        "value": None,
        "truncated": False,
        "error": error,
        "exitCode": exit_code,
        "limit": limit,
        "peakMemoryBytes": resources.peak_bytes(),
    }


def _bare(error: BaseException) -> ErrorFields:
    """An error without the help of its own code."""
    return ErrorFields(type=type(error).__name__, message="the failure could not be described", line=None, traceback="")


async def _call(program: Program, namespace: dict[str, Any]) -> None:
    exec(program.code, namespace)  # noqa: S102 - the product's purpose


async def _awaited(value: Any) -> Any:
    return await value
