"""Processes of `multiprocessing` find the functions of the code, whichever way they start."""

import pytest
from tests.component.sandbox.test_sessions import Session

POOLS = {
    "pool": "with context.Pool(2) as pool:\n    result = pool.map(square, [1, 2, 3])",
    "executor": "from concurrent.futures import ProcessPoolExecutor\n"
    "with ProcessPoolExecutor(2, mp_context=context) as pool:\n    result = list(pool.map(square, [1, 2, 3]))",
    "process": "queue = context.SimpleQueue()\nprocess = context.Process(target=send, args=(queue, 9))\n"
    "process.start()\nresult = queue.get()\nprocess.join()",
}
FUNCTIONS = """
import multiprocessing
def square(number):
    return number * number
def send(queue, value):
    queue.put(value)
"""


@pytest.fixture
def sandbox(reused):
    return reused


@pytest.mark.parametrize("way", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("pool", POOLS)
def test_each_start_method_runs_functions_of_the_code(sandbox, way, pool):
    code = f"{FUNCTIONS}context = multiprocessing.get_context('{way}')\n{POOLS[pool]}\nprint('once')"
    run = sandbox.run(code)
    assert (run.phase, run.result, run.stdout) == ("Succeeded", 9 if pool == "process" else [1, 4, 9], "once\n"), (
        run.error,
        run.stderr,
    )
    assert not list(sandbox.workspace.glob("agent*")), "the workspace has no file that the code did not make"


def test_guarded_code_works_as_in_a_script(sandbox):
    code = f"""
{FUNCTIONS}
FACTOR = len("ab")
def scaled(number):
    return number * FACTOR
if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    with multiprocessing.Pool(2) as pool:
        result = pool.map(scaled, range(3))
"""
    run = sandbox.run(code)
    assert (run.phase, run.result) == ("Succeeded", [0, 2, 4]), run.stderr


def test_children_have_the_variables_and_classes_that_functions_use(sandbox):
    code = """
import multiprocessing
from collections import namedtuple
from dataclasses import dataclass
@dataclass
class Item:
    price: int
Pair = namedtuple("Pair", "a b")
rates = dict(zip("ab", (2, 3)))
default = Item(5)
def price(pair):
    return Item(rates[pair.a] * base + default.price)
items = multiprocessing.get_context("spawn").Pool(1).map(price, [Pair("a", 1), Pair("b", 2)])
[item.price for item in items]
"""
    run = sandbox.run(code, context={"base": 10})
    assert (run.phase, run.result) == ("Succeeded", [25, 35]), run.stderr


def test_children_return_objects_of_the_code_if_the_pool_imports_multiprocessing(make_sandbox):
    code = """
import multiprocessing
class Item:
    price = 7
def make(_):
    return Item()
[item.price for item in multiprocessing.get_context("spawn").Pool(1).map(make, [1])]
"""
    run = make_sandbox(preimport="multiprocessing").run(code)
    assert (run.phase, run.result) == ("Succeeded", [7]), run.stderr


def test_an_error_in_a_child_has_its_line(sandbox):
    code = "import multiprocessing\ndef fail(x):\n    return 1 / x\n"
    run = sandbox.run(code + "multiprocessing.get_context('spawn').Pool(1).map(fail, [0])")
    assert (run.error["type"], run.error["line"]) == ("ZeroDivisionError", 4)
    assert 'File "<agent>", line 3, in fail' in run.error["traceback"]


def test_a_function_that_cannot_be_pickled_fails_at_once(sandbox):
    run = sandbox.run("import multiprocessing\nmultiprocessing.get_context('spawn').Pool(1).map(lambda x: x, [1])")
    assert (run.reason, run.error["line"]) == ("UserError", 2)
    assert "pickle" in run.error["message"]


def test_children_of_a_session_have_functions_of_earlier_jobs(sandbox):
    session = Session(sandbox)
    assert session.run("def double(x):\n    return 2 * x").phase == "Succeeded"
    code = "import multiprocessing\nwith multiprocessing.get_context('spawn').Pool(1) as pool:\n"
    assert session.run(code + "    r = pool.map(double, [4])\nr").result == [8]


def test_code_still_reads_its_own_file_name(sandbox):
    code = "import __main__, os\n[os.path.basename(__file__), os.path.basename(__main__.__file__), __main__.__name__]"
    assert sandbox.run(code).result == ["agent.py", "agent.py", "__main__"]
