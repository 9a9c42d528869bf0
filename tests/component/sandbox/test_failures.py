"""How runs fail: types, messages, lines and tracebacks of the agent's own code; exits; deaths."""

import pytest


@pytest.fixture
def sandbox(reused):
    return reused


def test_a_syntax_error_names_its_line(sandbox):
    run = sandbox.run("x = 1\nif x\n    pass\n")
    assert (run.phase, run.reason) == ("Failed", "UserError")
    assert (run.error["type"], run.error["line"]) == ("SyntaxError", 2)
    assert 'File "<agent>", line 2' in run.error["traceback"]
    assert "if x" in run.error["traceback"]


def test_a_cause_is_kept_in_the_traceback(sandbox):
    run = sandbox.run("try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise ValueError('wrong') from e\n")
    assert (run.error["type"], run.error["message"], run.error["line"]) == ("ValueError", "wrong", 4)
    assert "ZeroDivisionError" in run.error["traceback"]
    assert "direct cause" in run.error["traceback"]


def test_notes_and_groups_of_exceptions_are_kept_in_the_traceback(sandbox):
    run = sandbox.run(
        "e = ValueError('a\\ud800b')\ne.add_note('try b')\nraise ExceptionGroup('two', [e, KeyError('k')])\n"
    )
    assert (run.error["type"], run.error["line"]) == ("ExceptionGroup", 3)
    for text in ("ValueError: a\\ud800b", "try b", "KeyError: 'k'"):
        assert text in run.error["traceback"]


def test_frames_of_libraries_are_left_out(sandbox):
    run = sandbox.run("import json\n\njson.loads('{')\n")
    assert (run.error["type"], run.error["line"]) == ("JSONDecodeError", 3)
    assert "decoder.py" not in run.error["traceback"]


def test_frames_of_the_agents_own_modules_are_kept(sandbox):
    code = "open('helper.py', 'w').write('def fail():\\n    raise KeyError(1)\\n')\nimport helper\nhelper.fail()\n"
    run = sandbox.run(code)
    assert run.error["line"] == 3
    assert "helper.py" in run.error["traceback"]


def test_a_failure_inside_awaited_code_names_the_innermost_line(sandbox):
    code = "import asyncio\nasync def work():\n    await asyncio.sleep(0)\n    raise LookupError('x')\nawait work()\n"
    run = sandbox.run(code)
    assert (run.error["type"], run.error["line"]) == ("LookupError", 4)
    assert "asyncio/" not in run.error["traceback"]
    assert "mcp_exec_sandbox" not in run.error["traceback"]


def test_an_exception_group_is_told_with_its_members(sandbox):
    code = """
import asyncio
async def fail(n):
    raise ValueError(f"number {n}")
async with asyncio.TaskGroup() as group:
    group.create_task(fail(1))
"""
    run = sandbox.run(code)
    assert run.error["type"] == "ExceptionGroup"
    assert "number 1" in run.error["traceback"]


def test_message_and_traceback_are_bounded(sandbox):
    run = sandbox.run("def f(n):\n    return f(n + 1) if n < 500 else 1 / 0\nraise ValueError('x' * 1_000_000)\n")
    assert len(run.error["message"]) < 4200
    assert len(run.error["traceback"]) < 17000
    assert "characters cut" in run.error["message"]


@pytest.mark.parametrize(
    "method", ["raise RuntimeError", "return 5", "import sys; sys.exit(3)", "return 'x' * 10_000_000"]
)
def test_a_hostile_message_is_survived(sandbox, method):
    run = sandbox.run(f"class Bad(Exception):\n    def __str__(self):\n        {method}\nraise Bad()\n")
    assert run.phase == "Failed"
    assert sandbox.client.get("/healthz").json()["state"] == "finished"


def test_a_recursion_error_is_told(sandbox):
    run = sandbox.run("def f():\n    return f()\nf()\n")
    assert (run.error["type"], run.error["line"]) == ("RecursionError", 2)


@pytest.mark.parametrize("code", ["import sys\nsys.exit()", "raise SystemExit(0)", "exit(0)", "raise SystemExit"])
def test_exit_without_a_code_succeeds(sandbox, code):
    run = sandbox.run(code)
    assert (run.phase, run.reason, run.error, run.end["exitCode"]) == ("Succeeded", "", None, 0)


def test_exit_with_a_code_fails_with_it(sandbox):
    run = sandbox.run("print('x')\nraise SystemExit(3)\n")
    assert (run.phase, run.reason, run.end["exitCode"], run.stdout) == ("Failed", "ExitCode", 3, "x\n")
    assert (run.error["type"], run.error["line"]) == ("SystemExit", 2)


def test_exit_with_a_message_writes_it_to_stderr(sandbox):
    run = sandbox.run("import sys\nsys.exit('no data')\n")
    assert (run.reason, run.end["exitCode"], run.stderr) == ("ExitCode", 1, "no data\n")


def test_exit_inside_a_coroutine_ends_the_run(sandbox):
    run = sandbox.run("import sys, asyncio\nasync def main():\n    sys.exit(4)\nasyncio.run(main())\n")
    assert (run.reason, run.end["exitCode"]) == ("ExitCode", 4)


def test_a_runner_that_ends_itself_died(sandbox):
    run = sandbox.run("import os\nprint('last words')\nos._exit(7)\n")
    assert run.error["message"] == (
        "the interpreter ended with code 7, as `os._exit(7)` does: `sys.exit(7)` ends the code, and its output is kept"
    )
    assert (run.phase, run.reason, run.end["exitCode"], run.stdout) == ("Failed", "RunnerDied", 7, "last words\n")
    assert "with code 7" in run.error["message"]


def test_a_runner_that_crashes_died_of_the_signal(sandbox):
    run = sandbox.run("import ctypes\nctypes.string_at(0)\n")
    assert (run.reason, run.end["exitCode"]) == ("RunnerDied", 139)
    assert "SIGSEGV" in run.error["message"]


def test_a_runner_that_kills_itself_died(sandbox):
    run = sandbox.run("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    assert (run.reason, run.end["exitCode"]) == ("RunnerDied", 137)


def test_a_forked_child_that_goes_on_reports_nothing(sandbox):
    code = """
import os
pid = os.fork()
if pid == 0:
    print("child")
    raise ValueError("the child fails")
_, status = os.waitpid(pid, 0)
{"childExit": os.waitstatus_to_exitcode(status)}
"""
    run = sandbox.run(code)
    assert (run.phase, run.result, run.stdout) == ("Succeeded", {"childExit": 1}, "child\n")


def test_the_runners_own_file_descriptors_may_be_closed(sandbox):
    run = sandbox.run("import os\nos.closerange(3, 1024)\nprint('closed')\n")
    assert (run.phase, run.reason, run.stdout) == ("Failed", "RunnerDied", "closed\n")
