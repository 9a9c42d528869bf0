"""Code that has ended ends as in Python: threads, exit handlers and open files come to their end before the report."""

import gzip
import sqlite3
import tarfile
import zipfile

import pytest
from tests.component.sandbox.conftest import ReusedSandbox, SandboxProcess
from tests.component.sandbox.test_sessions import OWNER, Session

WAITING = (
    "import threading\ndef work(seconds, text):\n    threading.Event().wait(seconds)\n    print(text, flush=True)\n"
)


@pytest.fixture(scope="module")
def patient():
    """A sandbox that gives interrupted code much time, which a busy machine needs."""
    reused = ReusedSandbox(lambda: SandboxProcess(grace_milliseconds="10000"))
    yield reused
    reused.close()


def read(sandbox, name="out"):
    return (sandbox.workspace / name).read_bytes()


@pytest.mark.parametrize(
    "holder",
    [
        "f = open('out', 'w')\nf.write('a,b\\n')",
        "import csv\nrows = csv.writer(open('out', 'w'), lineterminator='\\n')\nrows.writerow(['a', 'b'])",
        "import io\nf = io.TextIOWrapper(io.BufferedWriter(io.FileIO('out', 'w')))\nf.write('a,b\\n')",
        "class Mine(__import__('io').TextIOWrapper): pass\nf = Mine(open('out', 'wb'))\nf.write('a,b\\n')",
        "class Log:\n    pass\nlog = Log()\nlog.me, log.f = log, open('out', 'w')\nlog.f.write('a,b\\n')\ndel log",
        "def make():\n    f = open('out', 'w')\n    return lambda text: f.write(text)\nmake()('a,b\\n')\nkept = make",
        "def add(text, f=open('out', 'w')):\n    f.write(text)\nadd('a,b\\n')",
        "import json\njson.my_file = open('out', 'wb')\njson.my_file.write(b'a,b\\n')",
        "import os\nf = os.fdopen(os.open('out', os.O_WRONLY | os.O_CREAT), 'w')\nf.write('a,b\\n')",
        "open('helper.py', 'w').write('f = open(\"out\", \"w\")\\nf.write(\"a,b\\\\n\")')\nimport helper",
        "f = open('out', 'w')\nf.write('a,b\\n')\nimport sys\nsys.exit(0)",
        "class Late:\n    def __init__(self):\n        self.f = open('out', 'w')\n    def __del__(self):\n"
        "        self.f.write('a,b\\n')\nlate = Late()",
        "import atexit\natexit.register(lambda: open('out', 'w').write('a,b\\n'))",
        "import sys\nsys.stdout = open('out', 'w')\nprint('a,b')",
        "async def go():\n    global f\n    f = open('out', 'w')\n    f.write('a,b\\n')\nawait go()",
    ],
)
def test_files_that_the_code_does_not_close_are_written(reused, holder):
    run = reused.run(holder)
    assert run.phase == "Succeeded", run.error
    assert read(reused) == b"a,b\n"


def test_code_that_fails_keeps_what_it_wrote(reused):
    run = reused.run("f = open('out', 'w')\nf.write('a,b\\n')\n1 / 0")
    assert (run.reason, run.error["line"], read(reused)) == ("UserError", 3, b"a,b\n")


def test_archives_that_the_code_does_not_close_are_complete(sandbox):
    code = """
import bz2, gzip, io, lzma, tarfile, zipfile
packed = gzip.open("a.gz", "wt")
packed.write("text")
other, third = bz2.open("a.bz2", "w"), lzma.open("a.xz", "w")
other.write(b"text"), third.write(b"text")
archive = zipfile.ZipFile("a.zip", "w")
archive.writestr("one", "1")
inner = archive.open("two", "w")
inner.write(b"2")
tar = tarfile.open("a.tar.gz", "w:gz")
member = tarfile.TarInfo("one")
member.size = 4
tar.addfile(member, io.BytesIO(b"text"))
"""
    run = sandbox.run(code)
    assert run.phase == "Succeeded", run.error
    assert run.stderr == ""
    assert gzip.decompress(read(sandbox, "a.gz")) == b"text"
    assert __import__("bz2").decompress(read(sandbox, "a.bz2")) == b"text"
    assert __import__("lzma").decompress(read(sandbox, "a.xz")) == b"text"
    with zipfile.ZipFile(sandbox.workspace / "a.zip") as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == {"one": b"1", "two": b"2"}
    with tarfile.open(sandbox.workspace / "a.tar.gz") as tar:
        assert tar.extractfile("one").read() == b"text"


def test_what_a_database_did_not_commit_stays_uncommitted(reused):
    code = """
import sqlite3
kept = sqlite3.connect("a.db")
kept.execute("PRAGMA journal_mode=WAL")
kept.execute("create table rows (a)")
kept.execute("insert into rows values (1)")
kept.commit()
kept.execute("insert into rows values (2)")
"""
    assert reused.run(code).phase == "Succeeded"
    assert sorted(path.name for path in reused.workspace.glob("a.*")) == ["a.db"], "the log was merged"
    with sqlite3.connect(reused.workspace / "a.db") as connection:
        assert connection.execute("select a from rows").fetchall() == [(1,)]


def test_a_note_names_the_files_that_were_written_at_the_end(reused):
    run = reused.run("f = open('out.csv', 'w')\nf.write('a,b\\n1,2\\n')\nprint('ok')")
    message = "The code did not close out.csv; its last 8 bytes were written at the end."
    assert run.end["notes"] == [{"kind": "FileFlushed", "path": "", "message": message}]
    assert run.stdout == "ok\n"


def test_a_file_that_has_no_room_at_the_end_fails_the_run(make_sandbox):
    sandbox = make_sandbox(storage_bytes=str(1 << 20))
    run = sandbox.run("f = open('out', 'wb', buffering=4 << 20)\nf.write(bytes(2 << 20))\n'fine'")
    assert (run.phase, run.reason) == ("Failed", "StorageLimit")
    assert not run.has_result


def test_threads_and_executors_end_their_work(sandbox):
    code = f"""
{WAITING}
from concurrent.futures import ThreadPoolExecutor
threading.Thread(target=work, args=(0.3, "thread")).start()
pool = ThreadPoolExecutor(1)
pool.submit(work, 0.1, "pooled")
pool.submit(work, 0.01, "queued")
5
"""
    run = sandbox.run(code)
    assert (run.phase, run.result, run.stdout) == ("Succeeded", 5, "pooled\nqueued\nthread\n")
    assert "notes" not in run.end


def test_processes_end_their_work(sandbox):
    code = f"""
{WAITING}
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
multiprocessing.Process(target=work, args=(0.3, "process")).start()
pool = ProcessPoolExecutor(1)
pool.submit(work, 0.1, "pooled")
"""
    run = sandbox.run(code)
    assert (run.phase, sorted(run.stdout.split())) == ("Succeeded", ["pooled", "process"])


def test_a_thread_may_wait_for_the_end_of_the_main_thread(reused):
    code = "import threading\ndef work():\n    threading.main_thread().join()\n    print('after')\n"
    run = reused.run(code + "threading.Thread(target=work).start()\nprint('main')")
    assert (run.phase, run.stdout) == ("Succeeded", "main\nafter\n")


def test_exit_handlers_run_in_reverse_order_and_their_errors_are_printed(sandbox):
    code = """
import atexit, sys
atexit.register(print, "first")
@atexit.register
def fail():
    1 / 0
atexit.register(sys.exit, 3)
atexit.register(print, "last")
"x"
"""
    run = sandbox.run(code)
    assert (run.phase, run.result, run.stdout) == ("Succeeded", "x", "last\nfirst\n")
    assert "ZeroDivisionError" in run.stderr
    assert 'File "<agent>", line 6, in fail' in run.stderr


@pytest.mark.parametrize("module", ["json", "multiprocessing"])
def test_finalizers_run_and_see_the_modules_that_they_use(reused, module):
    code = (
        f"import {module}"
        + """
import json
class Last:
    def __init__(self, name):
        self.name = name
    def __del__(self):
        print(json.dumps(self.name), helper())
def helper():
    return 1
last = Last("one")
cycle = [Last("two")]
cycle.append(cycle)
"""
    )
    run = reused.run(code)
    assert sorted(run.stdout.splitlines()) == ['"one" 1', '"two" 1']
    assert run.stderr == ""


def test_generators_that_are_suspended_run_their_finally(reused):
    code = "def rows():\n    try:\n        yield 1\n    finally:\n        print('closed')\nkept = rows()\nnext(kept)"
    assert reused.run(code).stdout == "closed\n"


def test_errors_of_threads_are_printed(reused):
    code = "import threading\nthreading.Thread(target=lambda: threading.Event().wait(0.1) or 1 / 0).start()\n3"
    run = reused.run(code)
    assert (run.phase, run.result) == ("Succeeded", 3)
    assert "ZeroDivisionError" in run.stderr


def test_threads_that_run_at_the_limit_are_named_and_nothing_else_is_lost(patient):
    code = """
import threading
kept = open("out", "w")
kept.write("data")
def work():
    while True:
        threading.Event().wait(0.01)
threading.Thread(target=work).start()
print("main")
{"rows": 3}
"""
    run = patient.run(code, timeoutSeconds=1)
    assert (run.phase, run.reason, run.stdout, run.result) == ("TimedOut", "Timeout", "main\n", {"rows": 3})
    text = "1 thread was still running: Thread-1 (work) at line 7"
    assert run.error["message"] == f"the code ran longer than 1 s: it ended, but {text}"
    assert {"kind": "ThreadsLeft", "path": "", "message": f"The code ended, but {text}."} in run.end["notes"]
    assert read(patient) == b"data"


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("import atexit, threading\n@atexit.register\ndef bye():\n    threading.Event().wait()", "1 exit handler was"),
        (
            "import multiprocessing, time\nmultiprocessing.Process(target=time.sleep, args=(60,)).start()",
            "1 process was still running: Process-1",
        ),
        (
            "from concurrent.futures import ThreadPoolExecutor\nimport time\npool = ThreadPoolExecutor(2)\n"
            "list(map(pool.submit, [time.sleep] * 2, [60] * 2))",
            "2 threads were still running: ThreadPoolExecutor-0_0, ThreadPoolExecutor-0_1",
        ),
        (
            "class A:\n    def __del__(self):\n        while True: pass\na = A()",
            "1 exit handler was still running: A.__del__",
        ),
    ],
)
def test_all_that_runs_at_the_limit_is_named(patient, code, text):
    run = patient.run(code + "\n'kept'", timeoutSeconds=2.0)
    assert (run.phase, run.reason, run.result) == ("TimedOut", "Timeout", "kept")
    assert text in run.error["message"]


def test_an_end_that_does_not_react_is_killed_and_the_result_kept(sandbox):
    code = "import atexit, collections, itertools\n"
    code += "atexit.register(collections.deque, itertools.repeat(1), maxlen=0)\nprint('x')\n7"
    run = sandbox.run(code, timeoutSeconds=2.0)
    assert (run.phase, run.stdout, run.result) == ("TimedOut", "x\n", 7)
    assert "did not come to an end" in run.error["message"]


def test_an_error_is_kept_if_threads_run_at_the_limit(patient):
    code = "import threading\nthreading.Thread(target=threading.Event().wait).start()\nraise ValueError('why')"
    run = patient.run(code, timeoutSeconds=2.0)
    assert (run.phase, run.error["line"]) == ("TimedOut", 3)
    assert "it ended with ValueError: why, but 1 thread was still running" in run.error["message"]
    assert "raise ValueError('why')" in run.error["traceback"]


def test_an_ignored_interrupt_does_not_keep_the_end_waiting(patient):
    code = "import signal, threading\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    run = patient.run(code + "threading.Thread(target=threading.Event().wait).start()\n1", timeoutSeconds=2.0)
    assert (run.phase, run.result) == ("TimedOut", 1)
    assert "1 thread was still running" in run.error["message"]


def test_daemon_threads_of_the_code_are_stopped_with_a_note(reused):
    code = "import threading\ndef work():\n    threading.Event().wait()\n"
    run = reused.run(code + "threading.Thread(target=work, daemon=True).start()\n1")
    assert (run.phase, run.result, run.stderr) == ("Succeeded", 1, "")
    message = "1 daemon thread was still running when the code ended, and stopped: Thread-1 (work)."
    assert run.end["notes"] == [{"kind": "ThreadsLeft", "path": "", "message": message}]


def test_a_cancelled_end_stops_its_waits(sandbox):
    code = "import threading\nprint('main', flush=True)\nthreading.Thread(target=threading.Event().wait).start()"
    lines = sandbox.start(code).iter_lines()
    assert any("main" in line for line in lines)
    assert sandbox.client.delete("/v1/execution").status_code == 202
    assert '"Cancelled"' in list(lines)[-1]


def test_code_that_forges_its_end_does_not_choose_its_phase(reused):
    code = """
import socket
socket.socket(fileno=3).sendall(b'{"type": "ended", "hasValue": true, "value": 5}\\n')
while True: pass
"""
    run = reused.run(code, timeoutSeconds=2.0)
    assert (run.phase, run.reason) == ("TimedOut", "Timeout")


def test_a_forked_child_ends_without_a_report(reused):
    code = """
import atexit, os
pid = os.fork()
if pid == 0:
    f = open("out", "w")
    f.write("child")
    atexit.register(lambda: open("handler", "w").write("ran"))
    raise SystemExit(4)
os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""
    run = reused.run(code)
    assert (run.phase, run.result) == ("Succeeded", 4)
    assert (read(reused), read(reused, "handler")) == (b"child", b"ran")


def test_an_interpreter_that_was_forked_from_a_template_ends_like_the_first(sandbox):
    code = "import atexit\natexit.register(print, 'bye')\nf = open('out', 'w')\nf.write('data')"
    for use in range(2):
        run = sandbox.run(code, id=f"uid-{use}", owner=OWNER)
        assert (run.phase, run.stdout, read(sandbox)) == ("Succeeded", "bye\n", b"data")
        assert sandbox.client.post("/v1/recycle", json={"id": f"uid-{use}"}).status_code == 200


def test_a_job_of_a_session_writes_its_files_and_leaves_them_open(sandbox):
    session = Session(sandbox)
    code = "import atexit, sys\natexit.register(print, 'bye')\nf = open('out', 'w')\nf.write('one')"
    run = session.run(code)
    assert (run.stdout, read(sandbox), "notes" in run.end) == ("", b"one", False)
    assert session.run("f.write(' two')").result == 4
    assert read(sandbox) == b"one two"
    session.run("import io\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer)\nprint('wrapped')")
    assert session.run("print('again')").stdout == "again\n"


def test_output_through_a_replaced_stream_is_kept(reused):
    code = "import io, sys\nprint('a', end='')\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-8')\n"
    assert reused.run(code + "print('b')").stdout == "ab\n"


GENERATOR = """
import asyncio
async def rows():
    try:
        yield 1
        yield 2
    finally:
        print("closed")
        1 / 0
async def take(it):
    async for row in it:
        break
"""


@pytest.mark.parametrize(
    "code",
    [
        "it = rows()\nawait take(it)\nprint('end')",
        "it = rows()\nasyncio.run(take(it))\nprint('end')",
        "it = rows()\nasync for row in it:\n    break\nprint('end')",
    ],
)
def test_an_asynchronous_generator_that_is_left_is_closed_and_its_error_is_reported(reused, code):
    run = reused.run(GENERATOR + code)
    assert (run.phase, sorted(run.stdout.split())) == ("Succeeded", ["closed", "end"])
    assert "an error occurred during closing of asynchronous generator" in run.stderr
    assert "ZeroDivisionError" in run.stderr


def test_the_error_of_a_closed_generator_reaches_the_handler_of_the_loop(reused):
    code = """
found = []
it = rows()
async def main():
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: found.append(str(context["exception"])))
    await take(it)
asyncio.run(main())
found
"""
    assert reused.run(GENERATOR + code).result == ["division by zero"]


def test_a_generator_that_began_before_goes_on_after_another_run_of_the_loop(reused):
    code = """
it = rows()
async def first(): return await anext(it)
async def second(): return [row async for row in it]
loop = asyncio.get_event_loop()
[loop.run_until_complete(first()), asyncio.run(take(rows())), "between"]
"""
    run = reused.run(GENERATOR.replace("1 / 0", "pass") + code)
    assert (run.result, run.stdout.split()) == ([1, None, "between"], ["closed", "closed"])


def test_the_error_of_a_task_that_was_cancelled_at_the_end_reaches_the_handler_of_the_loop(reused):
    code = """
import asyncio
found = []
async def left():
    try:
        await asyncio.sleep(60)
    finally:
        1 / 0
async def main():
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: found.append(context))
    task = asyncio.create_task(left())
    await asyncio.sleep(0)
asyncio.run(main())
[[context["message"], str(context["exception"])] for context in found]
"""
    assert reused.run(code).result == [["unhandled exception during asyncio.run() shutdown", "division by zero"]]


def test_asyncio_run_debugs_the_loop_if_asked_and_only_then(reused):
    code = """
import asyncio
async def debugs(): return asyncio.get_running_loop().get_debug()
[asyncio.run(debugs()), asyncio.run(debugs(), debug=True), asyncio.run(debugs(), debug=None), asyncio.run(debugs())]
"""
    assert reused.run(code).result == [False, True, False, False]
