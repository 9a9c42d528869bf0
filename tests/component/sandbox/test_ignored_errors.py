"""Errors that fail no execution, because nothing reads them: Python prints each, and a note names it."""

from typing import Any

import pytest

FAIL = "import asyncio\nasync def save():\n    1 / 0\n"
LOST = "save() failed at line 3 and nothing awaited it: write `await` before the task or the gather. "
LOST += "ZeroDivisionError: division by zero"


@pytest.fixture
def sandbox(reused: Any) -> Any:
    return reused


def list_notes(run: Any) -> list[tuple[str, str]]:
    return [(note["kind"], note["message"]) for note in run.end.get("notes", [])]


UNREAD = {
    "kept, and begun at the end": "tasks = [asyncio.create_task(save())]\nprint('all done')",
    "kept, and ended before": "t = asyncio.create_task(save())\nawait asyncio.sleep(0)\n'ok'",
    "dropped": "asyncio.create_task(save())\nawait asyncio.sleep(0)\nimport gc; gc.collect()\n'ok'",
    "kept in asyncio.run": "async def main():\n    global t\n    t = asyncio.create_task(save())\n"
    "    await asyncio.sleep(0)\nasyncio.run(main())",
    "dropped in asyncio.run": "async def main():\n    t = asyncio.create_task(save())\n    await asyncio.sleep(0)\n"
    "asyncio.run(main())",
    "kept in a runner": "async def main():\n    return asyncio.create_task(save())\n"
    "with asyncio.Runner() as r:\n    t = r.run(main())\n    r.run(asyncio.sleep(0))",
    "in a thread": "import threading\nasync def main():\n    global t\n    t = asyncio.create_task(save())\n"
    "    await asyncio.sleep(0)\nth = threading.Thread(target=lambda: asyncio.run(main()))\nth.start()\nth.join()",
    "after a wait": "t = asyncio.create_task(save())\ndone, _ = await asyncio.wait([t])\nlen(done)",
    "in a cycle": "t = [asyncio.create_task(save())]\nt.append(t)\nawait asyncio.sleep(0)",
}


@pytest.mark.parametrize("name", UNREAD)
def test_a_task_that_failed_and_was_never_awaited_is_printed_and_a_note(sandbox: Any, name: str) -> None:
    run = sandbox.run(FAIL + UNREAD[name])
    assert (run.phase, list_notes(run)) == ("Succeeded", [("NotAwaited", LOST)])
    assert run.stderr.count("exception was never retrieved\nfuture: <Task finished") == 1
    assert run.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_a_gather_or_a_future_that_failed_is_one_too(sandbox: Any) -> None:
    run = sandbox.run(FAIL + "g = asyncio.gather(save(), save())\ndone, _ = await asyncio.wait([g])\nlen(done)")
    assert list_notes(run) == [("NotAwaited", LOST.replace("save()", "A gather"))]
    assert "_GatheringFuture exception was never retrieved" in run.stderr
    run = sandbox.run("import asyncio\nf = asyncio.get_running_loop().create_future()\nf.set_exception(OSError('x'))")
    text = "A future failed and nothing awaited it: write `await` before the task or the gather. OSError: x"
    assert list_notes(run) == [("NotAwaited", text)]


def test_the_tool_of_a_failed_call_is_named(sandbox: Any, broker: Any) -> None:
    broker.tools["github.star"] = lambda call: call.error("ToolError", "no such repository")
    code = "import asyncio\nt = asyncio.create_task(call_mcp_tool('github.star'))\nawait asyncio.wait([t])\n'starred'"
    run = sandbox.run(code, tools=broker.job)
    text = (
        "github.star failed at line 2 and nothing awaited it: write `await` before the task or the gather. ToolError: "
    )
    assert (run.phase, list_notes(run)) == ("Succeeded", [("NotAwaited", text + "github.star: no such repository")])
    assert "client.ToolError: github.star: no such repository" in run.stderr


READ = {
    "awaited": "t = asyncio.create_task(save())\ntry:\n    await t\nexcept ZeroDivisionError:\n    pass",
    "asked": "t = asyncio.create_task(save())\nawait asyncio.wait([t])\nstr(t.exception())",
    "gathered": "await asyncio.gather(save(), save(), return_exceptions=True)\n1",
    "handled by the code": "asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)\n"
    "t = asyncio.create_task(save())\nawait asyncio.sleep(0)",
}


@pytest.mark.parametrize("name", READ)
def test_an_error_that_the_code_has_read_is_no_note(sandbox: Any, name: str) -> None:
    run = sandbox.run(FAIL + READ[name])
    assert (run.phase, list_notes(run), run.stderr) == ("Succeeded", [], "")


def test_a_task_that_waits_at_the_end_is_a_note_whatever_it_waits_for(sandbox: Any) -> None:
    code = "import asyncio\nasync def save():\n    await asyncio.sleep(60)\nt = asyncio.create_task(save())\n"
    text = "save() at line 4 was cancelled when the code ended: write `await` before the task or the gather."
    assert list_notes(sandbox.run(code + "await asyncio.sleep(0)")) == [("NotAwaited", text)]


def test_a_session_may_read_the_error_later_and_is_told_of_it_once(make_sandbox: Any) -> None:
    sandbox, fields = make_sandbox(), {"owner": "a" * 32, "session": True}
    code = FAIL + "tasks = [asyncio.create_task(save()) for n in range(2)]\nawait asyncio.sleep(0)"
    run = sandbox.run(code, **fields)
    assert (list_notes(run), run.stderr) == ([("NotAwaited", LOST)], "")
    run = sandbox.run("try:\n    await tasks[0]\nexcept ZeroDivisionError as e:\n    print(e)", id="uid-2", **fields)
    assert (list_notes(run), run.stdout) == ([], "division by zero\n")
    run = sandbox.run("del tasks", id="uid-3", **fields)
    assert (list_notes(run), run.stderr.count("never retrieved")) == ([], 1)


OTHERS = {
    "a thread": (
        "import threading\ndef work():\n    1 / 0\nt = threading.Thread(target=work)\nt.start(); t.join()",
        "Thread-1 (work)",
    ),
    "a callback": (
        "import asyncio\ndef work():\n    1 / 0\nasyncio.get_running_loop().call_soon(work)\nawait asyncio.sleep(0)",
        "A callback of asyncio",
    ),
    "an asynchronous generator": (
        "async def rows():\n    try: yield 1\n    finally: 1 / 0\na = rows()\nawait anext(a)",
        "rows()",
    ),
    "a finalizer": (
        "class A:\n    def __del__(self):\n        1 / 0\nx = A()\ndel x",
        "A.__del__",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_errors_that_python_only_prints_are_notes(sandbox: Any, name: str) -> None:
    code, text = OTHERS[name]
    run = sandbox.run(code + "\n'ok'")
    message = f"{text} failed at line 3, and the execution went on. ZeroDivisionError: division by zero"
    assert (run.result, list_notes(run)) == ("ok", [("ErrorIgnored", message)])
    assert run.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_many_errors_of_one_line_are_one_note(sandbox: Any) -> None:
    code = FAIL + "tasks = [asyncio.create_task(save()) for n in range(50)]\nawait asyncio.sleep(0)"
    assert list_notes(sandbox.run(code)) == [("NotAwaited", LOST)]


def test_an_error_whose_text_cannot_be_had_is_named_by_its_type(sandbox: Any) -> None:
    code = "import asyncio\nclass E(Exception):\n    def __str__(self): 1 / 0\nasync def f():\n    raise E\n"
    run = sandbox.run(code + "t = asyncio.create_task(f())\nawait asyncio.sleep(0)\n1")
    assert (run.result, [kind for kind, _ in list_notes(run)]) == (1, ["NotAwaited"])
    assert " E: " in list_notes(run)[0][1]
