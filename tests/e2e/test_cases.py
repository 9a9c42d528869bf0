"""Code as models and people write it, on real sandboxes of both runtimes: what it prints, returns and leaves.

Each case stands for its kind. Cases run in a pool that reuses its pods, so that the table is fast; some run once more
in pods of a single use.
"""

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
    notes: tuple[str, ...] = ()
    """Kinds of the notes, in their order."""
    files: dict[str, str] = field(default_factory=dict)
    """Texts of files in the working folder after the run."""
    artifacts: tuple[str, ...] = ()
    reads: str = ""
    """Code that runs afterwards with the same workspace. Its result must be `read`."""
    read: Any = None
    spec: dict[str, Any] = field(default_factory=dict)


CASES: dict[str, Case] = {
    "A1: a text file": Case(
        code="f = open('out.csv', 'w')\nf.write('a,b\\n1,2\\n')\nprint('ok')",
        stdout="ok\n",
        notes=("FileFlushed",),
        files={"out.csv": "a,b\n1,2\n"},
    ),
    "A1: a csv writer": Case(
        code="""import csv
rows = csv.writer(open('x.csv', 'w', newline=''))
rows.writerow([1, 2])
print('ok')""",
        stdout="ok\n",
        notes=("FileFlushed",),
        files={"x.csv": "1,2\r\n"},
    ),
    "A1: gzip": Case(
        code="""import gzip
f = gzip.open('x.gz', 'wt')
f.write('text')
import atexit
print('ok')""",
        stdout="ok\n",
        reads="""import gzip
gzip.open('x.gz', 'rt').read()""",
        read="text",
    ),
    "A1: zipfile": Case(
        code="""import zipfile
z = zipfile.ZipFile('x.zip', 'w')
z.writestr('one', '1')
print('ok')""",
        stdout="ok\n",
        reads="""import zipfile
zipfile.ZipFile('x.zip').read('one').decode()""",
        read="1",
    ),
    "A1: sqlite3 without commit": Case(
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
    "A1: code that fails": Case(
        code="f = open('out.csv', 'w')\nf.write('a,b\\n')\n1 / 0",
        phase="Failed",
        reason="UserError",
        line=3,
        files={"out.csv": "a,b\n"},
    ),
    "A1: sys.exit": Case(
        code="import sys\nf = open('out.csv', 'w')\nf.write('a,b\\n')\nsys.exit(0)",
        files={"out.csv": "a,b\n"},
    ),
    "A1: a finalizer that writes": Case(
        code="""class Log:
    def __init__(self):
        self.f = open('log.txt', 'w')
    def __del__(self):
        self.f.write('bye')
        print('closed')
log = Log()""",
        stdout="closed\n",
        files={"log.txt": "bye"},
    ),
    "A2: a thread": Case(
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
    "A2: an executor": Case(
        code="""from concurrent.futures import ThreadPoolExecutor
import time
pool = ThreadPoolExecutor(1)
pool.submit(lambda: (time.sleep(.2), print('one')))
pool.submit(print, 'two')
5""",
        stdout="one\ntwo\n",
        result=5,
    ),
    "A2: a thread at the limit": Case(
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
        error=("1 thread was still running: Thread-1 (work) at line 5",),
        notes=("ThreadsLeft",),
        files={"t.txt": "kept"},
        spec={"timeoutSeconds": 2},
    ),
    "A2: a daemon thread": Case(
        code="""import threading
def work():
    threading.Event().wait()
threading.Thread(target=work, daemon=True).start()
1""",
        result=1,
        notes=("ThreadsLeft",),
    ),
    "trial A2: exit handlers": Case(
        code="""import atexit
atexit.register(lambda: print('bye'))
print('x')""",
        stdout="x\nbye\n",
    ),
    "A4: a pool by fork": Case(
        code="""import multiprocessing as mp
def f(x):
    return x * x
mp.get_context('fork').Pool(2).map(f, [1, 2, 3])""",
        result=[1, 4, 9],
    ),
    "A4: a pool by spawn": Case(
        code="""import multiprocessing as mp
def f(x):
    return x * x
mp.get_context('spawn').Pool(2).map(f, [1, 2, 3])""",
        result=[1, 4, 9],
    ),
    "A4: a pool by forkserver": Case(
        code="""import multiprocessing as mp
def f(x):
    return x * x
mp.get_context('forkserver').Pool(2).map(f, [1, 2, 3])""",
        result=[1, 4, 9],
    ),
    "A4: set_start_method, guarded": Case(
        code="""import multiprocessing as mp
def f(x):
    return x * x
if __name__ == '__main__':
    mp.set_start_method('spawn')
    with mp.Pool(2) as pool:
        print(pool.map(f, [1, 2, 3]))""",
        stdout="[1, 4, 9]\n",
    ),
    "A4: an executor by spawn": Case(
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
    "A11: endless recursion": Case(
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
    "A11: recursion in C": Case(
        code="""import sys
sys.setrecursionlimit(10**6)
class A:
    def __repr__(self):
        return repr(self)
repr(A())""",
        phase="Failed",
        reason="RunnerDied",
        error=("the stack overflowed",),
        line=5,
        spec={"timeoutSeconds": 30},
    ),
    "trial A12: stacks of 512 MiB": Case(
        code="""import threading
threading.stack_size(512 << 20)
threading.Thread(target=print).start()""",
        phase="Failed",
        reason="OutOfMemory",
        error=("512 MiB",),
        line=2,
    ),
    "trial A12: memory": Case(
        code="x = bytearray(1 << 40)",
        phase="Failed",
        reason="OutOfMemory",
        error=("the memory limit of the sandbox is",),
    ),
    "trial A12: storage": Case(
        code="open('x', 'wb').write(bytes(300 << 20))",
        phase="Failed",
        reason="StorageLimit",
        error=("MiB",),
    ),
    "item 5: an ignored SIGINT": Case(
        code="""import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
while True:
    pass""",
        phase="TimedOut",
        reason="Timeout",
        error=("it did not end when it was interrupted",),
        spec={"timeoutSeconds": 2},
    ),
    "A15: stdout replaced": Case(
        code="""import io, sys
sys.stdout = io.StringIO()
print('x')""",
    ),
    "A15: stdout wrapped": Case(
        code="""import io, sys
sys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-8')
print('x')""",
        stdout="x\n",
    ),
    "trial A3": Case(
        code="open('artifacts/a.txt', 'w').write('a')",
        result=1,
        notes=("FileFlushed",),
    ),
    "trial A6": Case(
        code="""import subprocess, sys
runs = [subprocess.run([name, '-c', 'print(1)'], capture_output=True, text=True).stdout for name in ('python', 'python3', sys.executable)]
runs""",
        result=["1\n", "1\n", "1\n"],
    ),
    "A5": Case(
        code="""import asyncio
async def main():
    await asyncio.sleep(0)
    return 5
await asyncio.sleep(0)
with asyncio.Runner() as r:
    r.run(main())
    v = r.run(main())
v""",
        result=5,
    ),
    "A6": Case(
        code="""import asyncio, nest_asyncio
nest_asyncio.apply()
async def main():
    return 6
await asyncio.sleep(0)
asyncio.run(main())""",
        result=6,
    ),
    "A7": Case(
        code="""%matplotlib inline
7""",
        result=7,
        notes=("CodeChanged",),
    ),
    "A7 (2)": Case(
        code="""%%time
x = 7
x""",
        result=7,
        notes=("CodeChanged",),
    ),
    "A7 (3)": Case(
        code="""x = 1
!pip install rarelib""",
        phase="Failed",
        reason="UserError",
        error=("SyntaxError", "nothing can be installed in a sandbox"),
        line=2,
    ),
    "A7 (4)": Case(
        code="?df",
        phase="Failed",
        reason="UserError",
        error=("SyntaxError", "help(df)"),
        line=1,
    ),
    "A7 (5)": Case(
        code="""import subprocess
subprocess.run(['pip', 'install', 'rarelib'])""",
        phase="Failed",
        reason="UserError",
        error=("ModuleNotFoundError", "nothing can be installed in a sandbox"),
        line=2,
    ),
    "A8": Case(
        code="""x = 1
import rarelib""",
        phase="Failed",
        reason="UserError",
        error=("ModuleNotFoundError", "No module named 'rarelib': "),
        line=2,
    ),
    "A8 (2)": Case(
        code="""import importlib.util
importlib.util.find_spec('rarelib') is None""",
        result=True,
    ),
    "A9": Case(
        code="display({'a': 1})",
        artifacts=("data-1.json",),
    ),
    "A9 (2)": Case(
        code="""from IPython.display import display, Markdown
display(Markdown('# Title'))""",
        artifacts=("view-1.md",),
    ),
    "A10": Case(
        code="""Here's the code:
```python
print(10)
```
It prints.""",
        stdout="10\n",
        notes=("CodeChanged",),
    ),
    "A10 (2)": Case(
        code="""~~~
print(10)
~~~""",
        stdout="10\n",
        notes=("CodeChanged",),
    ),
    "A10 (3)": Case(
        code="    x = 10\n    x",
        result=10,
        notes=("CodeChanged",),
    ),
    "A10 (4)": Case(
        code="    x = '''\n    a'''\n    x",
        result="\n    a",
        notes=("CodeChanged",),
    ),
    "A10 (5)": Case(
        code="\ufeff10",
        result=10,
    ),
    "A10 (6)": Case(
        code="x = 1\ny\xa0= 2",
        phase="Failed",
        reason="UserError",
        error=("SyntaxError", "U+00A0 (NO-BREAK SPACE) is not a space in Python; replace it with a normal space"),
        line=2,
    ),
    "A10 (7)": Case(
        code="print(“a”)",
        phase="Failed",
        reason="UserError",
        error=("SyntaxError", 'U+201C (LEFT DOUBLE QUOTATION MARK) is not part of Python; replace it with "'),
        line=1,
    ),
    "A10 (8)": Case(
        code="x = '\xa0“'  # \xa0\nlen(x)",
        result=2,
    ),
    "A13": Case(
        code="""x = [13]
x;""",
        notes=("ValueChanged",),
    ),
    "A13 (2)": Case(
        code="print(13);  # shown",
        stdout="13\n",
    ),
    "A16": Case(
        code="""import inspect
class A:
    x = 1
inspect.getsource(A)""",
        result="class A:\n    x = 1\n",
    ),
    "A17": Case(
        code="""x = 17
from __future__ import annotations
def f(a: Missing): return a
f(x)""",
        result=17,
        notes=("CodeChanged",),
    ),
    "A22": Case(
        code="x = 1\r\nx + 21\r\n",
        result=22,
    ),
    "A22 (2)": Case(
        code='d = {\'k\': 1}\nf"{d["k"]}"',
        phase="Failed",
        reason="UserError",
        error=("SyntaxError", "Python 3.11 runs here"),
        line=2,
    ),
    "A22 (3)": Case(
        code="""try:
    1 / 0
except ValueError, ZeroDivisionError:
    x = 1""",
        phase="Failed",
        reason="UserError",
        error=("SyntaxError", "write `except (A, B):`"),
        line=3,
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
    assert tuple(note["kind"] for note in answer.get("notes") or ()) == case.notes, answer.get("notes")


@pytest.mark.parametrize("name", CASES)
def test_code_does_what_its_author_expects(gateway: Gateway, pool: str, pools: dict[str, str], name: str) -> None:
    case = CASES[name]
    spec = {"poolRef": {"name": pools[pool]}, **case.spec}
    if case.reads or case.files:
        spec["workspace"] = {"name": f"case-{list(CASES).index(name)}-{pool}"}
    check(gateway.run(case.code, **spec), case)
    if case.files:
        read = f"{{name: open(name, newline='').read() for name in {sorted(case.files)}}}"
        assert gateway.run(read, **spec)["output"]["result"] == case.files
    if case.reads:
        assert gateway.run(case.reads, **spec)["output"]["result"] == case.read
