"""The ten examples, against a real supervisor and runner."""

import json

import pytest

MIB = 1024 * 1024


def test_hello_is_printed(sandbox):
    run = sandbox.run("print('hello')")
    assert [event["type"] for event in run.events] == ["status", "stdout", "end"]
    assert (run.phase, run.reason, run.stdout, run.stderr, run.error) == ("Succeeded", "", "hello\n", "", None)
    assert run.end["stdoutBytes"] == 6
    assert run.end["exitCode"] is None


def test_ten_thousand_rows_are_filtered_and_only_the_summary_leaves(sandbox):
    code = """
rows = [{"id": number, "amount": number % 250} for number in range(10_000)]
big = [row for row in rows if row["amount"] > limit]
print(f"{len(big)} of {len(rows)} are over ${limit}")
{"total": sum(row["amount"] for row in big)}
"""
    run = sandbox.run(code, context={"limit": 100})
    assert run.phase == "Succeeded"
    assert run.stdout == "5960 of 10000 are over $100\n"
    assert run.result == {"total": sum(n % 250 for n in range(10_000) if n % 250 > 100)}


def test_top_level_await_works(sandbox):
    code = "import asyncio\nnumbers = await asyncio.gather(*[asyncio.sleep(0, n) for n in range(3)])\nnumbers"
    assert sandbox.run(code).result == [0, 1, 2]


def test_an_exception_names_the_agents_line(sandbox):
    run = sandbox.run("def share(total, people):\n    return total / people\n\nprint('before')\nshare(10, 0)\n")
    assert (run.phase, run.reason, run.stdout) == ("Failed", "UserError", "before\n")
    assert run.error["type"] == "ZeroDivisionError"
    assert run.error["message"] == "division by zero"
    assert run.error["line"] == 2
    assert run.error["traceback"].startswith(
        'Traceback (most recent call last):\n  File "<agent>", line 5, in <module>\n'
    )
    assert "mcp_exec_sandbox" not in run.error["traceback"]


def test_an_infinite_loop_ends_at_the_time_limit_with_its_output(sandbox):
    run = sandbox.run("print('started')\nwhile True:\n    pass\n", timeoutSeconds=1)
    assert (run.phase, run.reason, run.stdout) == ("TimedOut", "Timeout", "started\n")
    assert run.error["type"] == "TimeoutError"
    assert run.error["message"] == "the code ran longer than 1 s"
    assert run.error["line"] in (2, 3)
    assert 1000 <= run.end["runMs"] < 3000


def test_an_allocation_of_one_gigabyte_is_out_of_memory(sandbox):
    run = sandbox.run("print('allocating')\nblock = bytearray(1 << 30)\nprint('unreachable')\n")
    assert (run.phase, run.reason, run.stdout) == ("Failed", "OutOfMemory", "allocating\n")
    assert run.error["type"] == "MemoryError"
    assert run.error["line"] == 2


def test_a_fork_bomb_reaches_the_process_limit(sandbox):
    run = sandbox.run("import os\nwhile True:\n    os.fork()\n")
    assert (run.phase, run.reason) == ("Failed", "ProcessLimit")
    assert sandbox.client.get("/healthz").json()["state"] == "finished"


def test_a_hundred_megabytes_of_output_keep_head_and_tail(sandbox):
    code = "print('first')\nline = 'x' * 1023\nfor _ in range(100 * 1024):\n    print(line)\nprint('last')\n"
    run = sandbox.run(code, outputBytes=65536)
    assert (run.phase, run.reason) == ("Succeeded", "")
    assert run.end["truncated"] is True
    assert run.end["stdoutBytes"] == 100 * MIB + len("first\nlast\n")
    assert run.stdout.startswith("first\nxxx")
    assert run.stdout.endswith("x\nlast\n")
    assert f"\n[... {run.end['stdoutBytes'] - 65536} bytes cut ...]\n" in run.stdout
    assert len(run.stdout) < 65536 + 60


def test_unicode_passes_unharmed(sandbox):
    text = "Grüße, 世界, 👩‍🚀, עברית"
    run = sandbox.run(f"print({text!r})\n{{'text': {text!r}, 'größe': 1}}")
    assert run.stdout == text + "\n"
    assert run.result == {"text": text, "größe": 1}
    assert run.end["stdoutBytes"] == len(text.encode()) + 1


@pytest.mark.parametrize(("code", "result"), [("6 * 7", 42), ("'text'", "text"), ("x = [1]\nx", [1]), ("False", False)])
def test_the_last_expression_is_the_result(sandbox, code, result):
    run = sandbox.run(code)
    assert run.has_result
    assert json.dumps(run.result) == json.dumps(result)
