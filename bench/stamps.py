"""Operator or gateway as a process that also records when each execution passed through it, for timeline.py.

It wraps the functions of the product that an execution goes through, and nothing else changes. The moments are seconds
of the wall clock, as the API server's audit log has them. At its end the process writes them to the file, with how late
its event loop was.

    python bench/stamps.py gateway FILE
"""

import asyncio
import functools
import importlib
import json
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

LAG_SECONDS: Final = 0.01
"""How often the event loop is asked how late it is."""
Find = Callable[..., str]
"""Returns the name of the execution of a call, or an empty text."""


@dataclass(kw_only=True)
class Stamps:
    """The moments of all executions of one process."""

    moments: dict[str, dict[str, float]] = field(default_factory=dict)
    lags: list[float] = field(default_factory=list)
    """Milliseconds by which the event loop ran a timer too late."""

    def add(self, name: str, what: str) -> None:
        """Record that an execution is here for the first time."""
        if name:
            self.moments.setdefault(name, {}).setdefault(what, time.time())

    def at_call(self, owner: Any, function: str, what: str, find: Find) -> None:
        """Record each call of a function that does not wait."""
        original = getattr(owner, function)

        @functools.wraps(original)
        def called(*args: Any, **kwargs: Any) -> Any:
            self.add(find(*args, **kwargs), what)
            return original(*args, **kwargs)

        setattr(owner, function, called)

    def around(self, owner: type, method: str, begins: str, ends: str, find: Find) -> None:
        """Record begin and end of each call of a coroutine. The name may be known at the end only."""
        original = getattr(owner, method)

        @functools.wraps(original)
        async def called(*args: Any, **kwargs: Any) -> Any:
            began = time.time()
            try:
                return await original(*args, **kwargs)
            finally:
                if name := find(*args, **kwargs):
                    self.moments.setdefault(name, {}).setdefault(begins, began)
                    self.add(name, ends)

        setattr(owner, method, called)

    def measure_loop(self) -> None:
        """Measure how late the event loop is, as long as it runs."""
        original = asyncio.Runner.run

        async def with_timer(work: Coroutine[Any, Any, Any]) -> Any:
            timer = asyncio.create_task(self._run_timer())
            try:
                return await work
            finally:
                timer.cancel()

        def run(runner: asyncio.Runner, work: Coroutine[Any, Any, Any], **kwargs: Any) -> Any:
            return original(runner, with_timer(work), **kwargs)

        setattr(asyncio.Runner, "run", run)  # noqa: B010 - mypy refuses the assignment

    async def _run_timer(self) -> None:
        while True:
            due = time.perf_counter() + LAG_SECONDS
            await asyncio.sleep(LAG_SECONDS)
            self.lags.append((time.perf_counter() - due) * 1000)


def stamp_gateway(stamps: Stamps) -> None:
    """Record requests, creations and ends of executions."""
    from mcp_exec_api.code_execution import is_finished
    from mcp_exec_common.kube.client import KubeClient
    from mcp_exec_gateway.core.executions.index import ExecutionIndex
    from mcp_exec_gateway.core.http.access_log import AccessLogMiddleware, get_trace

    def find_traced(_self: object, scope: Any, *_: object) -> str:
        return str(get_trace(scope).execution or "") if scope["type"] == "http" else ""

    def find_created(_self: object, path: str, body: Any) -> str:
        return str(body["metadata"].get("name", "")) if path.endswith("/codeexecutions") else ""

    def find_ended(_self: object, execution: Any, deleted: bool) -> str:
        return str(execution["metadata"]["name"]) if not deleted and is_finished(execution) else ""

    stamps.around(AccessLogMiddleware, "__call__", "received", "responded", find_traced)
    stamps.around(KubeClient, "create", "create sent", "create answered", find_created)
    stamps.at_call(ExecutionIndex, "on_change", "end observed", find_ended)


def stamp_operator(stamps: Stamps) -> None:
    """Record events, status writes and runs of executions."""
    from mcp_exec_operator.cluster.kube.api import OperatorApi
    from mcp_exec_operator.core.executions.controller import ExecutionController
    from mcp_exec_operator.core.executions.run import Run

    def find_written(wanted: str, _self: object, _kind: str, _namespace: str, name: str, *, what: str, **_: Any) -> str:
        return name if what == wanted else ""

    def find_observed(_self: object, body: Any, *, deleted: bool) -> str:
        return str(body["metadata"]["name"])

    def find_run(run: Any, *_: object) -> str:
        return str(run.execution.facts.name)

    stamps.at_call(ExecutionController, "observe", "event received", find_observed)
    for what in ("bind", "finish"):
        find = functools.partial(find_written, what)
        stamps.around(OperatorApi, "replace_status", f"{what} sent", f"{what} answered", find)
    stamps.around(Run, "_follow", "dispatched", "ended", find_run)


PARTS: Final = {"gateway": stamp_gateway, "operator": stamp_operator}


def main() -> None:
    """Run the part that the command line names, until it ends."""
    part, target = sys.argv[1], Path(sys.argv[2])
    sys.argv[1:] = []
    stamps = Stamps()
    PARTS[part](stamps)
    stamps.measure_loop()
    try:
        sys.exit(importlib.import_module(f"mcp_exec_{part}.__main__").main())
    finally:
        target.write_text(json.dumps({"moments": stamps.moments, "lags": stamps.lags}))


if __name__ == "__main__":
    main()
