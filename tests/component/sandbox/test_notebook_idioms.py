"""Code as notebooks and models write it runs, and what can't run says what to write instead."""

import sys

import pytest

MAIN = "import asyncio\nasync def main():\n    await asyncio.sleep(0)\n    return 'from main'\n"

ACCEPTED = {
    "a fence of backticks": "```python\n'value'\n```",
    "a fence of tildes with text around it": "Here's the code:\n~~~\n'value'\n~~~\nIt's done.",
    "common indentation": "    x = 'value'\n    x",
    "a byte order mark": "\ufeff'value'",
    "line breaks of Windows": "x = 'value'\r\nx\r\n",
    "harmless magics": "%matplotlib inline\n%load_ext autoreload\n%autoreload 2\n'value'",
    "a magic of a cell": "%%time\n'value'",
    "a magic with a statement": "%time x = 'value'\nx",
    "a late future import": "x = 'value'\nfrom __future__ import annotations\ndef f(a: Missing): return x\nf(1)",
    "nest_asyncio": MAIN + "import nest_asyncio\nnest_asyncio.apply()\nawait main()\nasyncio.run(main()) and 'value'",
    "a semicolon between statements": "x = 1; 'value'",
    "a semicolon in a string": "'value' if ';' else ''  # ;",
    "a semicolon in a block": "if True:\n    'value';",
}


@pytest.fixture
def sandbox(reused):
    return reused


@pytest.mark.parametrize("code", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_idioms_of_notebooks_run(sandbox, code):
    run = sandbox.run(code)
    assert (run.phase, run.result, run.error) == ("Succeeded", "value", None)


def test_what_was_changed_is_in_the_notes(sandbox):
    run = sandbox.run("Code:\n```python\n%matplotlib inline\nprint(1)\n```")
    assert run.stdout == "1\n"
    assert [(note["kind"], note["message"]) for note in run.end["notes"]] == [
        ("CodeChanged", "The Markdown fence was removed, and the text outside did not run (line 1)."),
        ("CodeChanged", "Line 3: %matplotlib has no effect here."),
    ]


def test_plain_code_has_no_notes(sandbox):
    assert "notes" not in sandbox.run("x = 1\nx").end


def test_lines_of_tracebacks_are_those_of_the_code_that_was_sent(sandbox):
    run = sandbox.run("Text\n```python\n%matplotlib inline\n\ndef f():\n    raise ValueError('here')\nf()\n```\n")
    assert run.error["line"] == 6
    assert 'line 6, in f\n    raise ValueError("here")'.replace('"', "'") in run.error["traceback"]


def test_a_form_feed_does_not_shift_the_lines_of_tracebacks(sandbox):
    run = sandbox.run("x = '\u2028\x0c\x1c'\n1 / 0\n")
    assert run.error["line"] == 2
    assert "1 / 0" in run.error["traceback"]


@pytest.mark.parametrize("code", ["x = [1]\nx;", "[1];  # shown", "(\n[1]\n) ;\n", "[1] \\\n;"])
def test_a_semicolon_at_the_end_suppresses_the_value_and_a_note_says_so(sandbox, code):
    run = sandbox.run(code)
    assert (run.phase, run.has_result) == ("Succeeded", False)
    assert [note["kind"] for note in run.end["notes"]] == ["ValueChanged"]


def test_a_semicolon_after_a_call_without_a_value_loses_nothing(sandbox):
    run = sandbox.run("print('x');")
    assert run.stdout == "x\n"
    assert "notes" not in run.end


def test_display_shows_what_show_shows(sandbox):
    code = """
from IPython.display import HTML, Image, Markdown, clear_output, display as show_it
from IPython import get_ipython
display({"a": 1}, [2])
show_it(Markdown("# Title"), HTML("<b>x</b>"), Image(data=b"\\x89PNG\\r\\n\\x1a\\n..."))
clear_output(wait=True)
import IPython, os
from IPython import display as module
module.display_again = IPython.display.display
[sorted(os.listdir("artifacts")), open("artifacts/view-1.md").read(), get_ipython()]
"""
    run = sandbox.run(code)
    assert run.error is None
    assert run.result == [["data-1.json", "data-2.json", "image-1.png", "view-1.html", "view-1.md"], "# Title", None]


def test_the_folder_of_artifacts_is_there_before_the_code(sandbox):
    run = sandbox.run("import os\nopen('artifacts/a.txt', 'w').write('a')\nos.listdir('artifacts')")
    assert run.result == ["a.txt"]


RUNNERS = {
    "a runner": "with asyncio.Runner() as runner:\n    value = runner.run(main())\nvalue",
    "two runs of one runner": (
        "with asyncio.Runner() as runner:\n    runner.run(main())\n    value = runner.run(main())\nvalue"
    ),
    "a runner of another module": (
        "from asyncio.runners import Runner\nwith Runner() as runner:\n    value = runner.run(main())\nvalue"
    ),
    "the loop of a runner": (
        "with asyncio.Runner() as runner:\n    value = runner.get_loop().run_until_complete(main())\nvalue"
    ),
    "a loop factory": (
        "with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:\n    value = runner.run(main())\nvalue"
    ),
    "a context": (
        "import contextvars\nseen = contextvars.ContextVar('seen', default='from main')\n"
        "async def read(): return seen.get()\nother = contextvars.copy_context()\n"
        "with asyncio.Runner() as runner:\n    value = runner.run(read(), context=other)\nvalue"
    ),
    "a test case": (
        "import unittest\nclass Case(unittest.IsolatedAsyncioTestCase):\n"
        "    async def test(self): self.assertEqual(await main(), 'from main')\n"
        "found = unittest.TestResult()\nCase('test').run(found)\nfound.wasSuccessful() and 'from main'"
    ),
}


@pytest.mark.parametrize("await_first", ["", "await asyncio.sleep(0)\n"], ids=["plain", "after an await"])
@pytest.mark.parametrize("code", RUNNERS.values(), ids=RUNNERS.keys())
def test_a_runner_of_asyncio_works_everywhere(sandbox, code, await_first):
    run = sandbox.run(MAIN + await_first + code)
    assert (run.phase, run.result, run.error) == ("Succeeded", "from main", None)


def test_other_tasks_of_the_outer_loop_go_on_after_a_runner(sandbox):
    code = MAIN + (
        "task = asyncio.create_task(main())\nawait asyncio.sleep(0)\n"
        "with asyncio.Runner() as runner:\n    runner.run(main())\n"
        "[await task, asyncio.current_task() is not None, asyncio.get_running_loop().is_running()]"
    )
    assert sandbox.run(code).result == ["from main", True, True]


def test_the_source_of_a_class_is_found(sandbox):
    run = sandbox.run("import inspect\nclass A:\n    x = 1\ninspect.getsource(A)")
    assert run.result == "class A:\n    x = 1\n"


REFUSED = {
    "a shell command": ("x = 1\n!ls", 2, "use Python"),
    "an installation by a magic": ("%pip install rarelib", 1, "nothing can be installed in a sandbox"),
    "an installation by a shell": ("!pip install rarelib", 1, "nothing can be installed in a sandbox"),
    "a question": ("?print", 1, "help(print)"),
    "a no-break space": ("x = 1\ny\u00a0= 2", 2, "U+00A0 (NO-BREAK SPACE) is not a space in Python"),
    "curly quotes": ("print(\u201ca\u201d)", 1, 'replace it with "'),
}


@pytest.mark.parametrize(("code", "line", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_what_can_not_run_says_what_to_write(sandbox, code, line, words):
    run = sandbox.run(code)
    assert (run.reason, run.error["type"], run.error["line"]) == ("UserError", "SyntaxError", line)
    assert words in run.error["message"]


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="this Python accepts it")
def test_a_newer_f_string_says_what_to_write(sandbox):
    run = sandbox.run('d = {\'k\': 1}\nf"{d["k"]}"')
    assert run.error["line"] == 2
    assert "Python 3.11 runs here" in run.error["message"]


def test_a_late_future_import_is_in_the_notes(sandbox):
    run = sandbox.run('"""Text."""\nx = 1\nfrom __future__ import annotations\nx')
    assert run.result == 1
    (note,) = run.end["notes"]
    assert note["message"] == "Line 3: `from __future__` took effect from the first line."
