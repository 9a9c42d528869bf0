"""Every shape of code that models write runs, and its value is found."""

import pytest

MAIN = "import asyncio\n\nasync def main():\n    await asyncio.sleep(0)\n    return 'from main'\n\n"

SHAPES = {
    "a coroutine as the last expression": MAIN + "main()",
    "an awaited coroutine": MAIN + "await main()",
    "asyncio.run": MAIN + "asyncio.run(main())",
    "asyncio.run inside a running loop": MAIN + "await asyncio.sleep(0)\nasyncio.run(main())",
    "asyncio.run twice": MAIN + "asyncio.run(main())\nasyncio.run(main())",
    "run_until_complete of the current loop": MAIN + "asyncio.get_event_loop().run_until_complete(main())",
    "run_until_complete inside a running loop": MAIN
    + "await asyncio.sleep(0)\nasyncio.get_running_loop().run_until_complete(main())",
    "run_until_complete of a new loop": MAIN + "loop = asyncio.new_event_loop()\nloop.run_until_complete(main())",
    "a new loop inside a running loop": MAIN
    + "await asyncio.sleep(0)\nloop = asyncio.new_event_loop()\nloop.run_until_complete(main())",
    "a loop that was set and closed": MAIN
    + "loop = asyncio.new_event_loop()\nasyncio.set_event_loop(loop)\n"
    + "try:\n    value = loop.run_until_complete(main())\nfinally:\n    loop.close()\nvalue",
    "a task as the last expression": MAIN + "asyncio.create_task(main())",
    "a main guard": MAIN + 'if __name__ == "__main__":\n    asyncio.run(main())\n',
    "a main guard that forgot to await": MAIN + 'if __name__ == "__main__":\n    main()\n',
    "a top-level return": MAIN + "return 'from main'",
    "a top-level return of a coroutine": MAIN + "return main()",
    "a top-level return in a block": "for n in range(3):\n    if n:\n        return 'from main'\nprint('unreachable')",
    "a top-level return that a bare except surrounds": "try:\n    return 'from main'\nexcept:\n    print('caught')\n",
    "a top-level return in a nested try": (
        "try:\n    try:\n        return 'from main'\n    finally:\n        pass\n"
        "except BaseException:\n    print('caught')\n"
    ),
    "a variable called result": MAIN + "result = await main()\nprint('computed')",
    "a variable called result that is a coroutine": MAIN + "result = main()\n",
    "async for and async with at the top level": (
        "import contextlib\n@contextlib.asynccontextmanager\nasync def opened():\n    yield 'from main'\n"
        "async with opened() as value:\n    pass\nvalue"
    ),
    "a future import": "from __future__ import annotations\ndef f(x: Missing): return x\nf('from main')",
    "asyncio.run in a thread": (
        MAIN + "from concurrent.futures import ThreadPoolExecutor\nawait asyncio.sleep(0)\n"
        "with ThreadPoolExecutor() as pool:\n    value = pool.submit(asyncio.run, main()).result()\nvalue"
    ),
    "asyncio.to_thread": MAIN + "await asyncio.to_thread(lambda: 'from main')",
    "nested runs": MAIN + "async def outer():\n    return asyncio.run(main())\nasyncio.run(outer())",
}


@pytest.fixture
def sandbox(reused):
    return reused


@pytest.mark.parametrize("code", SHAPES.values(), ids=SHAPES.keys())
def test_the_value_of_the_code_is_found(sandbox, code):
    run = sandbox.run(code)
    assert (run.phase, run.result, run.error) == ("Succeeded", "from main", None)
    assert "caught" not in run.stdout
    assert "unreachable" not in run.stdout
    assert run.stderr == ""


def test_code_without_a_value_has_no_result(sandbox):
    run = sandbox.run("x = 1\nprint(x)")
    assert not run.has_result
    assert run.stdout == "1\n"


def test_a_value_stands_before_the_variable_called_result(sandbox):
    assert sandbox.run("result = 'variable'\n'expression'").result == "expression"


def test_empty_code_succeeds(sandbox):
    run = sandbox.run("")
    assert (run.phase, run.has_result) == ("Succeeded", False)


def test_other_tasks_go_on_while_an_inner_run_waits(sandbox):
    code = """
import asyncio
order = []
async def background():
    order.append("background")
async def inner():
    await asyncio.sleep(0.01)
    order.append("inner")
task = asyncio.create_task(background())
asyncio.run(inner())
await task
order
"""
    assert sandbox.run(code).result == ["background", "inner"]


def test_tasks_that_are_left_over_are_cancelled_and_may_clean_up(sandbox):
    code = """
import asyncio
async def forever():
    try:
        await asyncio.Event().wait()
    finally:
        print("cleaned up")
task = asyncio.create_task(forever())
await asyncio.sleep(0)
"end"
"""
    run = sandbox.run(code)
    assert (run.phase, run.result, run.stdout) == ("Succeeded", "end", "cleaned up\n")


def test_context_is_a_dictionary_and_variables(sandbox):
    code = "[user_id, context['user_id'], context['not-a-name'], type(id).__name__, context['id'], context['class']]"
    run = sandbox.run(code, context={"user_id": "u-1", "not-a-name": 2, "id": 3, "class": 4, "__name__": "x"})
    assert run.result == ["u-1", "u-1", 2, "builtin_function_or_method", 3, 4]


def test_a_result_in_the_context_is_not_the_codes_result(sandbox):
    assert not sandbox.run("print(result)", context={"result": 5}).has_result


def test_main_is_a_real_module(sandbox):
    code = """
import dataclasses, pickle, sys, typing
from pathlib import Path
@dataclasses.dataclass
class Row:
    name: "str"
    parent: "Row | None" = None
copy = pickle.loads(pickle.dumps(Row("a")))
[__name__, sys.modules["__main__"].Row is Row, copy == Row("a"), typing.get_type_hints(Row)["name"] is str,
 Path(__file__).parent == Path.cwd(), sys.argv]
"""
    assert sandbox.run(code).result == ["__main__", True, True, True, True, ["agent.py"]]


def test_modules_in_the_workspace_can_be_imported(sandbox):
    code = "open('helper.py', 'w').write('def double(x): return 2 * x')\nimport helper\nhelper.double(21)"
    assert sandbox.run(code).result == 42


def test_input_finds_the_end_of_file(sandbox):
    run = sandbox.run("input('name? ')")
    assert (run.reason, run.error["type"], run.stdout) == ("UserError", "EOFError", "name? ")
    hint = "A sandbox has no input: pass values in `context` when you create the execution."
    assert run.error["message"] == f"EOF when reading a line\n{hint}"
    run = sandbox.run("import getpass\ngetpass.getpass()")
    assert run.error["message"].rpartition("\n")[2] == hint
    assert "input" not in sandbox.run("raise EOFError('x')").error["message"]


def test_the_environment_says_nothing_of_the_cluster(sandbox):
    code = "import os\nsorted(name for name in os.environ if name.startswith(('MCP_EXEC', 'KUBERNETES')))"
    assert sandbox.run(code).result == []


def test_stdout_and_stderr_are_separate(sandbox):
    run = sandbox.run("import sys\nprint('out')\nprint('err', file=sys.stderr)")
    assert (run.stdout, run.stderr) == ("out\n", "err\n")
    assert (run.end["stdoutBytes"], run.end["stderrBytes"]) == (4, 4)


def test_output_of_child_processes_is_output(sandbox):
    run = sandbox.run("import subprocess\nsubprocess.run(['sh', '-c', 'echo out; echo err >&2'], check=True)\nNone")
    assert (run.stdout, run.stderr) == ("out\n", "err\n")


def test_a_process_pool_works(sandbox):
    code = """
from concurrent.futures import ProcessPoolExecutor
def square(x):
    return x * x
with ProcessPoolExecutor(2) as pool:
    squares = list(pool.map(square, range(4)))
squares
"""
    run = sandbox.run(code)
    assert (run.result, run.error) == ([0, 1, 4, 9], None)
