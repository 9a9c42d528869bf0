"""Code as models and people write it, on real sandboxes of both runtimes: what it prints, returns and leaves.

Each case stands for its kind; tests/component/sandbox has more of each, and hack/python_values all kinds of values.
Cases run in pools that reuse their pods, so that the table is fast. Cases of the kernel run on each runtime.
"""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.e2e.support import Cluster, Gateway, pool_manifest

ABSENT: Any = object()


@dataclass(frozen=True, kw_only=True)
class Case:
    """Code, and what must come of it."""

    code: str
    phase: str = "Succeeded"
    reason: str = ""
    stdout: str = ""
    stderr: str | None = None
    """Text that stderr contains; None allows any."""
    result: Any = ABSENT
    error: tuple[str, ...] = ()
    """Texts that the error's type, message and traceback contain."""
    line: int | None = None
    notes: tuple[str, ...] | None = ()
    """Kinds of the notes, in their order; None allows any, where a busy machine has no time to count what still ran."""
    files: dict[str, str] = field(default_factory=dict)
    """Texts of files in the working folder after the run."""
    artifacts: tuple[str, ...] = ()
    reads: str = ""
    """Code that runs afterwards with the same workspace. Its result must be `read`."""
    read: Any = None
    spec: dict[str, Any] = field(default_factory=dict)


OF_THE_KERNEL: dict[str, Case] = {
    "a text file that is not closed": Case(
        code="f = open('out.csv', 'w')\nf.write('a,b\\n1,2\\n')\nprint('ok')",
        stdout="ok\n",
        notes=("FileFlushed",),
        files={"out.csv": "a,b\n1,2\n"},
    ),
    "a gzip file that is not closed": Case(
        code="""import gzip
f = gzip.open('x.gz', 'wt')
f.write('text')
import atexit
print('ok')""",
        stdout="ok\n",
        notes=("FileFlushed",),
        reads="""import gzip
gzip.open('x.gz', 'rt').read()""",
        read="text",
    ),
    "a database without commit": Case(
        code="""import sqlite3
c = sqlite3.connect('x.db')
c.execute('create table t (a)')
c.commit()
c.execute('insert into t values (1)')
print('ok')""",
        stdout="ok\n",
        reads="""import sqlite3
sqlite3.connect('x.db').execute('select count(*) from t').fetchone()[0]""",
        read=0,
    ),
    "a file that is not closed by code that fails": Case(
        code="f = open('out.csv', 'w')\nf.write('a,b\\n')\n1 / 0",
        phase="Failed",
        reason="UserError",
        line=3,
        notes=("FileFlushed",),
        files={"out.csv": "a,b\n"},
    ),
    "a thread that is not joined": Case(
        code="""import threading, time
def w():
    time.sleep(.3)
    print('done')
    open('t.txt', 'w').write('x')
threading.Thread(target=w).start()
print('main')""",
        stdout="main\ndone\n",
        files={"t.txt": "x"},
    ),
    "a thread that runs at the time limit": Case(
        code="""import threading
f = open('t.txt', 'w')
f.write('kept')
def work():
    threading.Event().wait()
threading.Thread(target=work).start()
print('main')
7""",
        phase="TimedOut",
        reason="Timeout",
        stdout="main\n",
        result=7,
        error=("the code ran longer than 2 s",),
        notes=None,
        files={"t.txt": "kept"},
        spec={"timeoutSeconds": 2},
    ),
    "a daemon thread": Case(
        code="""import threading
def work():
    threading.Event().wait()
threading.Thread(target=work, daemon=True).start()
1""",
        result=1,
        notes=("ThreadsLeft",),
    ),
    "a pool of processes by fork": Case(
        code="""import multiprocessing as mp
def f(x):
    return x * x
mp.get_context('fork').Pool(2).map(f, [1, 2, 3])""",
        result=[1, 4, 9],
    ),
    "a pool of processes by spawn": Case(
        code="""import multiprocessing as mp
def f(x):
    return x * x
mp.get_context('spawn').Pool(2).map(f, [1, 2, 3])""",
        result=[1, 4, 9],
    ),
    "a pool of processes by forkserver": Case(
        code="""import multiprocessing as mp
def f(x):
    return x * x
mp.get_context('forkserver').Pool(2).map(f, [1, 2, 3])""",
        result=[1, 4, 9],
    ),
    "an executor of processes by spawn": Case(
        code="""import multiprocessing as mp
from concurrent.futures import ProcessPoolExecutor
base = int('10')
def f(x):
    return x + base
with ProcessPoolExecutor(2, mp_context=mp.get_context('spawn')) as pool:
    out = list(pool.map(f, [1, 2]))
out""",
        result=[11, 12],
    ),
    "pools of the size of the processor limit": Case(
        code="""import os
from concurrent.futures import ProcessPoolExecutor
with ProcessPoolExecutor() as pool:
    out = list(pool.map(abs, range(-3, 0)))
names = ('OMP_NUM_THREADS', 'POLARS_MAX_THREADS', 'RAYON_NUM_THREADS', 'NUMEXPR_MAX_THREADS', 'LOKY_MAX_CPU_COUNT')
sizes = {os.cpu_count(), pool._max_workers, *(int(os.environ[name]) for name in names)}
[out, len(sizes)]""",
        result=[[3, 2, 1], 1],
    ),
    "endless recursion with a raised limit": Case(
        code="""import sys
sys.setrecursionlimit(10**6)
def f(n):
    return f(n + 1)
f(0)""",
        phase="Failed",
        reason="UserError",
        error=("RecursionError", "the memory of the sandbox allows"),
        line=4,
        spec={"timeoutSeconds": 30},
    ),
    "endless recursion in C with a raised limit": Case(
        code="""import sys
sys.setrecursionlimit(10**6)
class A:
    def __repr__(self):
        return repr(self)
repr(A())""",
        phase="Failed",
        reason="UserError",
        error=("maximum recursion depth exceeded",),
        line=5,
        spec={"timeoutSeconds": 30},
    ),
    "a stack of 512 MiB": Case(
        code="""import threading
threading.stack_size(512 << 20)
threading.Thread(target=print).start()""",
        phase="Failed",
        reason="OutOfMemory",
        error=("512 MiB",),
        line=2,
    ),
    "more memory than the limit": Case(
        code="x = bytearray(1 << 40)",
        phase="Failed",
        reason="OutOfMemory",
        error=("the memory limit of the sandbox is",),
    ),
    "more storage than the limit": Case(
        code="open('x', 'wb').write(bytes(300 << 20))",
        phase="Failed",
        reason="StorageLimit",
        error=("MiB",),
    ),
    "an endless loop that ignores SIGINT": Case(
        code="""import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
while True:
    pass""",
        phase="TimedOut",
        reason="Timeout",
        error=("it did not end when it was interrupted",),
        spec={"timeoutSeconds": 2},
    ),
    "the entry of the user": Case(
        code="""import getpass, os, pathlib, pwd
entry = pwd.getpwuid(os.getuid())
[entry.pw_name, getpass.getuser(), entry.pw_dir == str(pathlib.Path.home())]""",
        result=["agent", "agent", True],
    ),
    "the interpreter by its names": Case(
        code="""import subprocess, sys
programs = ('python', 'python3', sys.executable)
[subprocess.check_output([name, '-c', 'print(1)'], text=True) for name in programs]""",
        result=["1\n", "1\n", "1\n"],
    ),
}

OF_THE_LANGUAGE: dict[str, Case] = {
    "nest_asyncio": Case(
        code="""import asyncio, nest_asyncio
nest_asyncio.apply()
async def main():
    return 6
await asyncio.sleep(0)
asyncio.run(main())""",
        result=6,
    ),
    "a magic that is not needed": Case(
        code="""%matplotlib inline
7""",
        result=7,
        notes=("CodeChanged",),
    ),
    "an installation by a magic": Case(
        code="""x = 1
!pip install rarelib""",
        phase="Failed",
        reason="UserError",
        error=("SyntaxError", "nothing can be installed in a sandbox"),
        line=2,
    ),
    "an installation by subprocess": Case(
        code="""import subprocess
subprocess.run(['pip', 'install', 'rarelib'])""",
        phase="Failed",
        reason="UserError",
        error=("ModuleNotFoundError", "nothing can be installed in a sandbox"),
        line=2,
    ),
    "a library that no pool has": Case(
        code="""x = 1
import rarelib""",
        phase="Failed",
        reason="UserError",
        error=("ModuleNotFoundError", "No module named 'rarelib': "),
        line=2,
    ),
    "display without an import": Case(
        code="display({'a': 1})",
        artifacts=("data-1.json",),
    ),
    "a fence of backticks with text around it": Case(
        code="""Here's the code:
```python
print(10)
```
It prints.""",
        stdout="10\n",
        notes=("CodeChanged",),
    ),
    "indented code": Case(
        code="    x = 10\n    x",
        result=10,
        notes=("CodeChanged",),
    ),
    "curly quotes": Case(
        code="print(“a”)",
        phase="Failed",
        reason="UserError",
        error=("SyntaxError", 'U+201C (LEFT DOUBLE QUOTATION MARK) is not part of Python; replace it with "'),
        line=1,
    ),
    "a value and a semicolon": Case(
        code="""x = [13]
x;""",
        notes=("ValueChanged",),
    ),
    "the source of a class": Case(
        code="""import inspect
class A:
    x = 1
inspect.getsource(A)""",
        result="class A:\n    x = 1\n",
    ),
    "a late import of __future__": Case(
        code="""x = 17
from __future__ import annotations
def f(a: Missing): return a
f(x)""",
        result=17,
        notes=("CodeChanged",),
    ),
    "an f-string with the same quotes inside": Case(
        code='d = {\'k\': 1}\nf"{d["k"]}"',
        result="1",
    ),
    "a number and a text as the same key": Case(
        code='{1: "a", "1": "b"}',
        result={"1": "a", "1 (2)": "b"},
        notes=("KeysCollided",),
    ),
    "a series with a repeated index": Case(
        code="""import pandas as pd
pd.Series([1, 2], index=["a", "a"])""",
        result=[{"index": "a", "value": 1}, {"index": "a", "value": 2}],
        notes=("KeysCollided",),
    ),
    "an array of dates": Case(
        code="""import numpy as np
np.array(["2026-01-01"], dtype="datetime64[ns]")""",
        result=["2026-01-01T00:00:00"],
    ),
    "infinities": Case(
        code='[float("nan"), float("inf"), -float("inf")]',
        result=[None, None, None],
        notes=("ValueChanged", "ValueChanged", "ValueChanged"),
    ),
    "calls that are not awaited": Case(
        code="""done = []
for n in range(3):
    done.append(call_mcp_tool("expenses.list_categories"))
print("tagged", len(done))""",
        stdout="tagged 3\n",
        stderr="coroutine 'call_mcp_tool' was never awaited",
        notes=("NotAwaited",),
    ),
    "a coroutine as a value": Case(
        code="""async def load():
    return [1]
for row in load():
    pass""",
        phase="Failed",
        reason="UserError",
        error=("'coroutine' object is not iterable: write `await load(...)`",),
        line=3,
        notes=("NotAwaited",),
    ),
    "a server that does not exist": Case(
        code="from servers.nowhere import list_issues",
        phase="Failed",
        reason="UserError",
        error=("there is no such server; those with tools that this execution may use: ",),
        line=1,
        notes=("NoToolMatches",),
        spec={"tools": ["nowhere.*"]},
    ),
    "a progress bar": Case(
        code="""import sys
for i in range(2001):
    print(f"\\r{i / 20:5.1f}% |{'#' * (i // 40):<50}| {i}/2000", end="", file=sys.stderr)
print("\\nfinished")""",
        stdout="\nfinished\n",
        stderr="100.0%",
        notes=("OutputCut",),
    ),
    "a request to a network": Case(
        code="""import urllib.request
try:
    urllib.request.urlopen("https://api.example.com/prices.json", timeout=2)
except OSError:
    print("no")""",
        stdout="no\n",
        notes=("NoNetwork",),
        spec={"timeoutSeconds": 60},
    ),
    "a program that needs a network": Case(
        code="""import subprocess
subprocess.run(["curl", "https://example.com"])""",
        phase="Failed",
        reason="UserError",
        error=("FileNotFoundError", "There is no program curl, and a sandbox has no network; call a tool instead."),
        line=2,
    ),
    "a library that pandas needs": Case(
        code="""import pandas as pd
pd.DataFrame({"a": [1, 2]}).to_markdown()""",
        phase="Failed",
        reason="UserError",
        error=("ImportError", "`tabulate` is missing: "),
        line=2,
    ),
    "an asynchronous generator": Case(
        code="""async def count():
    yield 1
    yield 2
count()""",
        result=[1, 2],
    ),
    "NaN in records": Case(
        code="""import pandas as pd
df = pd.DataFrame({"a": [1, 2], "b": [1.5, None]})
[df.to_dict(orient="records"), df]""",
        result=[[{"a": 1, "b": 1.5}, {"a": 2, "b": None}]] * 2,
        notes=("ValueChanged", "ValueChanged"),
    ),
    "an integer beyond 2**53": Case(
        code="725653563933458433",
        result=725653563933458433,
        notes=("ValueChanged",),
    ),
    "an integer beyond 64 bits in a dictionary": Case(
        code='{"id": 2**63 + 1}',
        result={"id": "9223372036854775809"},
        notes=("ValueChanged",),
    ),
    "an integer of 5,001 digits": Case(
        code="10**5000",
        result="1" + "0" * 5000,
        notes=("ValueChanged",),
    ),
    "a float with the value of an integer": Case(
        code="1.0",
        result=1,
        notes=("ValueChanged",),
    ),
    "negative zero": Case(
        code="-0.0",
        result=0,
        notes=("ValueChanged",),
    ),
    "half of a surrogate pair": Case(
        code='"a\\ud800b"',
        result="a\\ud800b",
        notes=("ValueChanged",),
    ),
    "an iterator without end": Case(
        code="""import itertools
itertools.count()""",
        result=list(range(1000)),
        notes=("OutputCut",),
    ),
}


@pytest.fixture(scope="module")
def pools(installed: Cluster, runtimes: dict[str, str | None]) -> Iterator[dict[str, str]]:
    """A pool of each runtime whose pods are used again."""
    image = installed.get("SandboxPool", "runc")["spec"]["image"]
    made = {name: f"cases-{name}" for name in runtimes}
    for name, pool in made.items():
        manifest = pool_manifest(name=pool, runtime=runtimes[name], image=image, warm=1)
        manifest["spec"]["reuse"] = {"scope": "Owner", "maxUses": 1000}
        installed.apply(manifest)
    yield made
    for pool in made.values():
        installed.delete("SandboxPool", pool)


def check(answer: dict[str, Any], case: Case) -> None:
    output, error = answer.get("output") or {}, answer.get("error") or {}
    assert (answer["phase"], answer["reason"]) == (case.phase, case.reason), answer
    assert output.get("stdout", "") == case.stdout
    if case.stderr is not None:
        assert case.stderr in output.get("stderr", "")
    assert output.get("result", ABSENT) == case.result
    text = f"{error.get('type')}: {error.get('message')}\n{error.get('traceback')}"
    assert [part for part in case.error if part not in text] == [], text
    if case.line is not None:
        assert error.get("line") == case.line
    assert tuple(item["name"] for item in answer.get("artifacts") or ()) == case.artifacts
    kinds = tuple(note["kind"] for note in answer.get("notes") or ())
    assert case.notes is None or kinds == case.notes, answer.get("notes")


CASES = OF_THE_KERNEL | OF_THE_LANGUAGE
RUNS = [(pool, name) for name in OF_THE_KERNEL for pool in ("runc", "gvisor")]
RUNS += [("runc", name) for name in OF_THE_LANGUAGE]


@pytest.mark.parametrize(("pool", "name"), RUNS, indirect=["pool"])
def test_code_does_what_its_author_expects(gateway: Gateway, pool: str, pools: dict[str, str], name: str) -> None:
    case = CASES[name]
    spec = {"poolRef": {"name": pools[pool]}, **case.spec}
    if case.reads or case.files:
        spec["workspace"] = {"name": f"case-{secrets.token_hex(4)}"}
    check(gateway.run(case.code, **spec), case)
    if case.files:
        read = f"{{name: open(name, newline='').read() for name in {sorted(case.files)}}}"
        assert gateway.run(read, **spec)["output"]["result"] == case.files
    if case.reads:
        assert gateway.run(case.reads, **spec)["output"]["result"] == case.read
