"""The examples of the page about the Python client, run as they are printed."""

import ast
import asyncio
import contextlib
import io
import traceback
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.component.gateway.conftest import CEX, KEY, SECRETS, Gateway, key_entry, keys_secret, serving
from tests.support.api_server import FakeApiServer
from tests.support.broker import running_broker
from tests.support.pages import Program, programs
from tests.support.until import until

EXAMPLES = [
    pytest.param(program, id=f"{page} {program.line}")
    for page in ("../README.md", "../client/README.md", "services/python-client.md")
    for program in programs(page)
]


def run(code: str, context: dict[str, Any]) -> dict[str, Any]:
    """Do what sandbox and operator do with an example's code; return the status."""
    if "sleep" in code:
        error = {"type": "Timeout", "message": "the code ran for longer than 1 s"}
        return {"phase": "TimedOut", "reason": "Timeout", "error": error, "durations": {"run": 1000.0}}
    statements = ast.parse(code).body
    last = statements.pop() if isinstance(statements[-1], ast.Expr) else ast.parse("None").body[0]
    assert isinstance(last, ast.Expr)
    names, printed, result = dict(context), io.StringIO(), None
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(ast.Module(statements, []), "<agent>", "exec"), names)
            result = eval(compile(ast.Expression(last.value), "<agent>", "eval"), names)
    except Exception as error:
        line = traceback.extract_tb(error.__traceback__)[-1].lineno
        failure = {"type": type(error).__name__, "message": str(error), "line": line}
        return {"phase": "Failed", "reason": "UserError", "error": failure}
    return {"output": {"stdout": printed.getvalue(), "result": result, "stdoutBytes": printed.tell()}}


@pytest.fixture
async def gateway(api: FakeApiServer) -> AsyncIterator[Gateway]:
    async with running_broker(api), serving(api, broker_service="mcp-exec-broker") as made:
        api.put(SECRETS, keys_secret(**{"team-a": {**key_entry(KEY), "approver": True}}))
        await until(lambda: (key := made.dependencies.keys.find(KEY)) is not None and key.entry.approver)

        def finish(collection: str, item: Any) -> None:
            if collection == CEX:
                made.finish(item["metadata"]["name"], **run(item["spec"]["code"], item["spec"].get("context") or {}))

        api.on_create = finish
        yield made


@pytest.mark.parametrize("program", EXAMPLES)
async def test_an_example_prints_what_the_page_shows(
    gateway: Gateway, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_EXEC_GATEWAY", gateway.url)
    monkeypatch.setenv("MCP_EXEC_API_KEY", KEY)
    assert await asyncio.to_thread(program.run) == list(program.shown)
