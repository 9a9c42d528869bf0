"""Calls whose `await` was forgotten: nothing ran, and the run says which, where and how often."""

from typing import Any

import pytest
from tests.component.sandbox.test_wrappers import wrappers

STAR, CREATE = "github.star", "github.create_issue"
IMPORT = "from servers.github import star, create_issue\n"


@pytest.fixture
def filled(reused: Any) -> Any:
    """A sandbox that has wrappers."""
    reused.clean()
    assert reused.client.put("/v1/wrappers", json=wrappers()).json() == {"hash": "h1"}
    return reused


def list_missed(run: Any) -> list[str]:
    return [note["message"] for note in run.end.get("notes", []) if note["kind"] == "NotAwaited"]


def say(name: str, call: str, line: int, count: int = 1) -> str:
    times = f" {count} times" if count > 1 else ""
    return f"{name} was called{times} without `await` at line {line}, so nothing was done: write `await {call}(...)`."


FORGOTTEN = {
    "kept in a list": ("done = []\nfor n in range(3):\n    done.append(star())\nprint(len(done))", "star", 4, 3),
    "kept in a comprehension": ("done = [star() for n in range(3)]\nprint(len(done))", "star", 2, 3),
    "kept in a dictionary": ("done = {n: star() for n in 'ab'}\nprint(len(done))", "star", 2, 2),
    "kept in a variable": ("x = star()\nprint('done')", "star", 2, 1),
    "kept in a cycle": ("x = [star()]\nx.append(x)\ndel x\nprint('done')", "star", 2, 1),
    "kept on an object": ("class A: pass\nA.x = star()\nprint('done')", "star", 3, 1),
    "dropped": ("for n in range(2):\n    star()\nprint('posted')", "star", 3, 2),
    "dropped as the last statement of a loop": ("for n in range(2):\n    star()", "star", 3, 2),
    "in an f-string": ("print(f'{star()}'[:11])", "star", 2, 1),
    "printed": ("print(str(star())[:9])", "star", 2, 1),
    "mapped": ("print(len(list(map(lambda n: star(), range(2)))))", "star", 2, 2),
    "compared": ("print(star() == [])", "star", 2, 1),
    "as a condition": ("if star():\n    print('yes')", "star", 2, 1),
    "in a function": ("def main():\n    star()\nmain()\nprint('x')", "star", 3, 1),
    "in an async function": ("async def main():\n    star()\nawait main()\nprint('x')", "star", 3, 1),
    "in asyncio.run": ("import asyncio\nasync def main():\n    star()\nasyncio.run(main())\nprint(1)", "star", 4, 1),
    "in a list that is the result": ("[star(), star()]", "star", 2, 2),
    "in a dictionary that is the result": ("{'a': star()}", "star", 2, 1),
    "in an executor of threads": (
        "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(1) as pool:\n"
        "    pool.map(lambda n: n, [star()])\nprint('x')",
        *("star", 4, 1),
    ),
}


@pytest.mark.parametrize("name", FORGOTTEN)
def test_a_tool_call_without_await_is_a_note_and_a_warning(filled: Any, broker: Any, name: str) -> None:
    code, function, line, count = FORGOTTEN[name]
    run = filled.run(IMPORT + code, tools=broker.job)
    assert (run.phase, broker.calls) == ("Succeeded", [])
    assert list_missed(run) == [say(f"github.{function}", function, line, count)]
    assert f"RuntimeWarning: coroutine '{function}' was never awaited" in run.stderr
    assert "mcp_exec_sandbox" not in run.stderr


def test_a_call_by_its_name_is_named(sandbox: Any, broker: Any) -> None:
    run = sandbox.run("x = call_mcp_tool('github.star', {'a': 1})\nprint('done')", tools=broker.job)
    assert list_missed(run) == [say("github.star", "call_mcp_tool", 1)]


def test_functions_of_the_code_are_named_too_and_the_warning_is_that_of_an_exit(sandbox: Any) -> None:
    code = "async def save(row): return row\njobs = [save(n) for n in range(3)]\nprint('saved', len(jobs))"
    run = sandbox.run(code)
    assert list_missed(run) == [say("save()", "save", 2, 3)]
    assert (run.stdout, run.stderr) == ("saved 3\n", "sys:1: RuntimeWarning: coroutine 'save' was never awaited\n")


def test_the_warning_follows_the_filters_of_the_code(sandbox: Any) -> None:
    code = "import warnings\nwarnings.simplefilter('ignore')\nasync def f(): pass\nx = f()\nprint('x')"
    run = sandbox.run(code)
    assert (list_missed(run), run.stderr) == ([say("f()", "f", 4)], "")


def test_a_function_of_a_library_is_named_if_the_code_called_it(sandbox: Any) -> None:
    run = sandbox.run("import asyncio\nasyncio.sleep(60)\nprint('x')")
    assert list_missed(run) == [say("sleep()", "sleep", 2)]


def test_code_that_awaits_or_closes_what_it_makes_has_no_note(filled: Any, broker: Any) -> None:
    code = """
import asyncio
async def own(n): return n
x = own(1); await x
own(2).close()
await asyncio.gather(star(), star(), *[own(n) for n in range(3)])
task = asyncio.create_task(star())
await task
async with asyncio.timeout(5):
    await asyncio.wait_for(star(), 5)
star()
"""
    broker.tools["github.star"] = lambda call: call.value(1)
    run = filled.run(IMPORT + code, tools=broker.job)
    assert (run.result, list_missed(run), run.stderr) == (1, [], "")


def cancelled(name: str, line: int, count: int = 1) -> str:
    what = f"{count} calls of {name}" if count > 1 else name
    verb = "were" if count > 1 else "was"
    return f"{what} at line {line} {verb} cancelled when the code ended: write `await` before the task or the gather."


TASKS = {
    "gather": ("import asyncio\nr = asyncio.gather(star(), star())\nprint('x')", 3, 2),
    "gather that has begun": ("import asyncio\nr = asyncio.gather(star(), star())\nawait asyncio.sleep(0)", 3, 2),
    "a task": ("import asyncio\nasyncio.create_task(star())\nprint('x')", 3, 1),
    "in asyncio.run": (
        "import asyncio\nasync def main():\n    asyncio.gather(star())\nasyncio.run(main())\nprint(1)",
        *(4, 1),
    ),
    "in a runner": (
        "import asyncio\nasync def main():\n    asyncio.gather(star())\nwith asyncio.Runner() as r:\n    r.run(main())",
        *(4, 1),
    ),
}


@pytest.mark.parametrize("name", TASKS)
def test_tasks_that_nothing_waits_for_are_a_note(filled: Any, broker: Any, name: str) -> None:
    code, line, count = TASKS[name]
    broker.tools["github.star"] = lambda call: None
    run = filled.run(IMPORT + code, tools=broker.job)
    assert run.phase == "Succeeded"
    assert list_missed(run) == [cancelled("github.star", line, count)]


def test_tasks_of_code_that_fails_are_no_note(filled: Any, broker: Any) -> None:
    code = IMPORT + "import asyncio\ntask = asyncio.create_task(star())\n1 / 0"
    run = filled.run(code, tools=broker.job)
    assert (run.error["type"], list_missed(run)) == ("ZeroDivisionError", [])


USED = {
    "iterated": ("for x in star():\n    pass", "star", 2),
    "iterated later": ("x = star()\ny = create_issue()\nfor e in x:\n    pass", "star", 4),
    "indexed": ("star()['a']", "star", 2),
    "indexed later": ("x = star()\nx[0]", "star", 3),
    "added": ("star() + 1", "star", 2),
    "in sum": ("sum([star()])", "star", 2),
    "joined": ("' '.join([star()])", "star", 2),
    "measured": ("len(star())", "star", 2),
    "an attribute": ("star().number", "star", 2),
    "an attribute in a function": ("def f(x):\n    return x.number\nf(star())", "star", 3),
    "compared": ("star() > 1", "star", 2),
    "searched": ("1 in star()", "star", 2),
    "unpacked": ("a, b = star()", "star", 2),
    "json": ("import json\njson.dumps(star())", "star", 3),
    "json later": ("import json\nx = [star()]\njson.dumps(x)", "star", 4),
    "a number": ("int(star())", "star", 2),
    "a with statement": ("with star():\n    pass", "star", 2),
    "an async loop": ("async for x in star():\n    pass", "star", 2),
    "called": ("star()()", "star", 2),
}


@pytest.mark.parametrize("name", USED)
def test_the_error_of_a_value_that_is_used_says_what_to_write(filled: Any, broker: Any, name: str) -> None:
    code, function, line = USED[name]
    run = filled.run(IMPORT + code, tools=broker.job)
    assert (run.reason, run.error["line"], broker.calls) == ("UserError", line, [])
    assert run.error["message"].endswith(f": write `await {function}(...)`")
    assert run.error["traceback"].rstrip().endswith(f": write `await {function}(...)`")


def test_the_error_of_a_library_that_was_given_a_coroutine_says_what_to_write(filled: Any, broker: Any) -> None:
    text = "def build(rows):\n    raise ValueError('not properly called')\n"
    library = (
        "import sys, tempfile\nsys.path.append(tempfile.mkdtemp())\n"
        f"open(sys.path[-1] + '/lib.py', 'w').write({text!r})\nimport lib\n"
    )
    for code in ("lib.build(star())", "rows = star()\nlib.build(rows)"):
        run = filled.run(IMPORT + library + code, tools=broker.job)
        assert run.error["message"] == "not properly called: write `await star(...)`"
    run = filled.run(IMPORT + "x = star()\nint('a')", tools=broker.job)
    assert "write" not in run.error["message"]


def test_an_asynchronous_generator_in_a_plain_loop_says_async_for(reused: Any) -> None:
    run = reused.run("async def f():\n    yield 1\nfor x in f():\n    pass")
    assert run.error["message"] == "'async_generator' object is not iterable: write `async for`"


def test_a_class_of_the_code_that_is_named_task_is_no_task_of_asyncio(reused: Any) -> None:
    run = reused.run("class Task: pass\nTask().title")
    assert run.error["message"] == "'Task' object has no attribute 'title'"


def test_a_coroutine_as_an_argument_is_refused_with_what_to_write(filled: Any, broker: Any) -> None:
    run = filled.run(IMPORT + "await create_issue(owner=star(), repo='r')", tools=broker.job)
    assert "owner is a coroutine: write `await star(...)`" in run.error["message"]


def test_a_future_that_is_used_says_await(filled: Any, broker: Any) -> None:
    code = IMPORT + "import asyncio\nr = asyncio.gather(star())\nr[0]"
    run = filled.run(code, tools=broker.job)
    assert run.error["message"].endswith(": write `await` before the task or the gather")


MISTAKES = {
    "a result that is not there yet": (
        "t = asyncio.create_task(star())\nt.result()",
        "Result is not set: write `await` before the task or the gather",
    ),
    "an error that is not there yet": (
        "t = asyncio.create_task(star())\nt.exception()",
        "Exception is not set: write `await` before the task or the gather",
    ),
    "coroutines in asyncio.wait": (
        "await asyncio.wait([star(), star()])",
        "Passing coroutines is forbidden, use tasks explicitly: write `await asyncio.gather(...)`",
    ),
    "a call that is awaited twice": (
        "async def f(): pass\nc = f()\nawait c\nawait c",
        "cannot reuse already awaited coroutine: await a call once and keep its value in a variable",
    ),
    "a call that two tasks await": (
        "c = asyncio.sleep(.1)\nasync def f(): await c\nawait asyncio.gather(f(), f())",
        "coroutine is being awaited already: await a call once and keep its value in a variable",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_errors_of_asyncio_say_what_to_write(filled: Any, broker: Any, name: str) -> None:
    code, message = MISTAKES[name]
    run = filled.run(f"{IMPORT}import asyncio\n{code}", tools=broker.job)
    assert (run.phase, run.error["message"]) == ("Failed", message)
    assert run.error["traceback"].rstrip().endswith(message)


@pytest.mark.parametrize("name", ["dropped", "compared"])
def test_the_warning_of_a_dropped_call_has_no_advice_on_tracemalloc(filled: Any, broker: Any, name: str) -> None:
    run = filled.run(IMPORT + FORGOTTEN[name][0], tools=broker.job)
    assert "tracemalloc" not in run.stderr
    run = filled.run(f"import tracemalloc\ntracemalloc.start()\n{IMPORT}{FORGOTTEN[name][0]}", tools=broker.job)
    assert "Object allocated at" in run.stderr


def test_errors_of_other_kinds_are_left_as_they_are(sandbox: Any) -> None:
    code = "import asyncio\nasync def f(): pass\nx = f()\nasyncio.run(None)"
    assert "write `await" not in sandbox.run(code).error["message"]


def test_a_session_notes_a_kept_call_once_and_the_next_run_may_await_it(make_sandbox: Any, broker: Any) -> None:
    sandbox, owner = make_sandbox(), "a" * 32
    broker.tools["github.star"] = lambda call: call.value(1)
    fields = {"owner": owner, "session": True, "tools": broker.job}
    code = "kept = [call_mcp_tool('github.star') for n in range(3)]\nprint('x')"
    assert list_missed(sandbox.run(code, **fields)) == [say("github.star", "call_mcp_tool", 1, 3)]
    run = sandbox.run("await kept[0]", id="uid-2", **fields)
    assert (run.result, list_missed(run)) == (1, [])
    run = sandbox.run("del kept\nprint('y')", id="uid-3", **fields)
    assert (list_missed(run), run.stderr.count("never awaited")) == ([], 1)
    run = sandbox.run("call_mcp_tool('github.star')\nprint('z')", id="uid-4", **fields)
    assert list_missed(run) == [say("github.star", "call_mcp_tool", 1)]


def test_a_module_of_the_workspace_is_named_by_its_file(sandbox: Any) -> None:
    text = "async def save(): pass\ndef work():\n    save()\n"
    run = sandbox.run(f"open('helper.py', 'w').write({text!r})\nimport helper\nhelper.work()\nprint('x')")
    assert list_missed(run) == [
        "save() was called without `await` at helper.py:3, so nothing was done: write `await save(...)`."
    ]


def test_many_places_are_bounded(sandbox: Any) -> None:
    code = "async def f(): pass\n" + "f()\n" * 1000 + "print('x')"
    notes = sandbox.run(code).end["notes"]
    assert len(notes) == 16
    assert notes[-1]["kind"] == "NotesDropped"


def test_an_async_generator_is_read_as_a_generator_is(reused: Any) -> None:
    code = """
import asyncio
async def count(n):
    for i in range(n):
        await asyncio.sleep(0)
        yield i
"""
    assert reused.run(code + "count(3)").result == [0, 1, 2]
    assert reused.run(code + "{'a': count(2), 'b': (i for i in 'xy')}").result == {"a": [0, 1], "b": ["x", "y"]}
    run = reused.run(code + "count(1001)")
    assert (run.result, [note["kind"] for note in run.end["notes"]]) == (list(range(1000)), ["OutputCut"])
    assert run.stderr == ""


def test_an_async_generator_that_raises_is_named_as_a_generator_is(reused: Any) -> None:
    code = "async def f():\n    yield 1\n    raise ValueError('no')\nf()"
    plain = "def f():\n    yield 1\n    raise ValueError('no')\nf()"
    run, other = reused.run(code), reused.run(plain)
    assert run.result.replace("async_", "") == other.result
    assert [note["kind"] for note in run.end["notes"]] == [note["kind"] for note in other.end["notes"]]
