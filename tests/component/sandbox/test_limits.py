"""Limits of Python code: lines and types of their errors, interruptions, child processes, stacks and recursion.

That each limit ends a run with its own reason is in the table of each language, tests/support/hostile_code.py. Here is
only what Python alone has: programs, forks, threads with stacks of a chosen size, and errors that limits raise in code.
"""

import json
import sys

import pytest

MIB = 1024 * 1024


def is_alive(sandbox):
    return sandbox.client.get("/healthz").json()["state"] == "finished"


def test_growing_memory_is_out_of_memory(sandbox):
    run = sandbox.run("rows = []\nwhile True:\n    rows.append('x' * 1_000_000)\n")
    assert (run.reason, run.error["type"], run.error["line"]) == ("OutOfMemory", "MemoryError", 3)
    assert run.end["peakMemoryBytes"] > 300 * MIB


def test_memory_of_child_processes_counts(make_sandbox):
    code = """
import os, signal
for _ in range(4):
    if os.fork() == 0:
        block = bytearray(60 << 20)
        for position in range(0, len(block), 4096):
            block[position] = 1
        signal.pause()
signal.pause()
"""
    sandbox = make_sandbox(memory_bytes=str(200 * MIB))
    run = sandbox.run(code)
    assert (run.phase, run.reason) == ("Failed", "OutOfMemory")
    assert "200 MiB" in run.error["message"]
    assert is_alive(sandbox)


def test_forks_of_a_large_process_do_not_count_several_times(make_sandbox):
    code = """
import os
block = bytearray(b"x") * (100 << 20)
children = []
for _ in range(4):
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.read(reading, 1)
        os._exit(0)
    children.append((pid, writing))
import threading
threading.Event().wait(0.3)
for pid, writing in children:
    os.write(writing, b"x")
    os.waitpid(pid, 0)
'done'
"""
    # Shares are read one process at a time: while it forks, some memory may be counted twice, but never five times.
    sandbox = make_sandbox(memory_bytes=str(400 * MIB))
    assert sandbox.run(code).result == "done"


def test_processes_without_end_reach_the_process_limit(sandbox):
    run = sandbox.run("import subprocess\nwhile True:\n    subprocess.Popen(['sleep', '60'])\n")
    assert (run.phase, run.reason) == ("Failed", "ProcessLimit")


def test_a_file_over_the_storage_limit_is_refused(make_sandbox):
    sandbox = make_sandbox(storage_bytes=str(4 * MIB))
    run = sandbox.run("with open('big', 'wb') as file:\n    while True:\n        file.write(bytes(100_000))\n")
    assert (run.phase, run.reason, run.error["type"]) == ("Failed", "StorageLimit", "OSError")
    assert run.error["line"] == 3


def test_deleted_files_that_a_process_without_a_main_thread_holds_count_as_storage(make_sandbox):
    code = """
import ctypes, os, signal, threading
def hold():
    files = []
    for number in range(8):
        files.append(open("hidden", "wb", buffering=0))
        os.unlink("hidden")
        files[-1].write(os.urandom(1 << 20))
    threading.Event().wait()
if os.fork() == 0:
    threading.Thread(target=hold).start()
    ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
signal.pause()
"""
    run = make_sandbox(storage_bytes=str(4 * MIB)).run(code)
    assert (run.phase, run.reason) == ("Failed", "StorageLimit")


def test_threads_of_processes_without_a_main_thread_count_as_processes(make_sandbox):
    code = """
import ctypes, os, signal, threading
def work():
    while True:
        threading.Thread(target=threading.Event().wait).start()
if os.fork() == 0:
    threading.Thread(target=work).start()
    ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
signal.pause()
"""
    run = make_sandbox(max_processes="40").run(code)
    assert (run.phase, run.reason) == ("Failed", "ProcessLimit")


def test_interrupted_code_may_clean_up(reused):
    code = "try:\n    while True:\n        pass\nfinally:\n    print('cleaned up')\n"
    run = reused.run(code, timeoutSeconds=0.2)
    assert (run.phase, run.reason, run.stdout) == ("TimedOut", "Timeout", "cleaned up\n")


def test_waiting_coroutines_are_interrupted_where_they_wait(reused):
    code = """
import asyncio
async def fetch():
    try:
        await asyncio.Event().wait()
    finally:
        print("cleaned up")
asyncio.run(fetch())
"""
    run = reused.run(code, timeoutSeconds=0.2)
    assert (run.reason, run.error["line"], run.stdout) == ("Timeout", 5, "cleaned up\n")


def test_code_that_swallows_the_interrupt_is_killed(reused):
    code = (
        "while True:\n    try:\n        while True:\n            pass\n    except BaseException:\n        print('no')\n"
    )
    run = reused.run(code, timeoutSeconds=0.2)
    assert (run.phase, run.reason, run.stdout) == ("TimedOut", "Timeout", "no\n")
    assert run.error["line"] in (3, 4)


def test_code_that_can_not_be_interrupted_is_killed(reused):
    run = reused.run("print('started')\nsum(range(10**12))\n", timeoutSeconds=0.2)
    assert (run.phase, run.reason, run.stdout) == ("TimedOut", "Timeout", "started\n")
    assert run.error["line"] == 2


def test_processes_left_behind_are_killed_at_the_end(sandbox):
    code = (
        "import subprocess as s\np = s.Popen(['sh', '-c', 'sleep 300 & echo $!'], stdout=-1)\nint(p.stdout.readline())"
    )
    run = sandbox.run(code)
    pid = run.result
    # The state is read from /proc: gone, or dead and not yet collected.
    for _ in range(200):
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] in "ZX":
                    break
        except (FileNotFoundError, ProcessLookupError):
            break
        sandbox.client.get("/healthz")
    else:
        raise AssertionError("the process lives")


def test_a_large_result_becomes_its_beginning(reused):
    run = reused.run("[{'row': n} for n in range(10_000)]", outputBytes=1000)
    assert run.result_truncated
    assert run.end["truncated"] is True
    assert run.result.startswith('[{"row": 0}')
    assert len(json.dumps(run.result)) <= 1000


def test_a_limit_that_was_hit_is_named(reused):
    assert "512 MiB" in reused.run("x = bytearray(1 << 40)").error["message"]


def test_the_size_of_files_is_named(make_sandbox):
    run = make_sandbox(storage_bytes=str(MIB)).run("open('x', 'wb').write(bytes(2 << 20))")
    assert (run.reason, "may take 1 MiB" in run.error["message"]) == ("StorageLimit", True)


def test_recursion_with_a_raised_limit_ends_with_its_line(sandbox):
    code = "import sys\nsys.setrecursionlimit(10**9)\ndef f(n):\n    return f(n + 1)\nf(0)"
    run = sandbox.run(code)
    assert (run.phase, run.reason, run.error["type"], run.error["line"]) == (
        "Failed",
        "UserError",
        "RecursionError",
        4,
    )
    assert "the memory of the sandbox allows" in run.error["message"]
    assert "calls are left out" in run.error["traceback"]


def test_a_recursion_in_c_is_a_stack_overflow_with_its_line(sandbox):
    code = "import sys\nsys.setrecursionlimit(10**6)\nclass A:\n    def __repr__(self):\n        return repr(self)\n"
    run = sandbox.run(code + "repr(A())")
    assert run.phase == "Failed"
    assert run.error["line"] in (4, 5)  # of the function: its first line if the stack ends while it is entered
    if sys.version_info >= (3, 12):  # bounds the recursion of its own C code
        assert (run.reason, run.error["type"]) == ("UserError", "RecursionError")
    else:
        assert run.reason == "RunnerDied"
        assert "the stack overflowed" in run.error["message"]


def test_a_deep_recursion_below_the_limit_works(reused):
    code = "import sys\nsys.setrecursionlimit(10**6)\ndef f(n):\n    return n and f(n - 1)\nf(100_000)"
    assert reused.run(code).result == 0


def test_stacks_that_do_not_fit_are_a_lack_of_memory(sandbox):
    run = sandbox.run("import threading\nthreading.stack_size(512 << 20)\nthreading.Thread(target=print).start()")
    assert (run.phase, run.reason, run.error["line"]) == ("Failed", "OutOfMemory", 2)
    assert "threading.stack_size" in run.error["message"]


def test_threads_whose_large_stacks_fill_the_memory_are_a_lack_of_memory(sandbox):
    code = """
import threading
threading.stack_size(190 << 20)
for _ in range(20):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
"""
    run = sandbox.run(code)
    assert (run.phase, run.reason) == ("Failed", "OutOfMemory")


@pytest.mark.parametrize("handler", ["signal.SIG_IGN", "lambda *_: print('no', flush=True)"])
def test_an_ignored_interrupt_is_named(reused, handler):
    code = f"import signal\nsignal.signal(signal.SIGINT, {handler})\nwhile True:\n    pass"
    run = reused.run(code, timeoutSeconds=0.3)
    assert (run.phase, run.error["line"] in (3, 4)) == ("TimedOut", True)
    assert "it did not end when it was interrupted" in run.error["message"]


def test_code_sees_the_processors_of_its_limit(monkeypatch, make_sandbox):
    monkeypatch.setenv("PYTHON_CPU_COUNT", "1")
    code = """
import multiprocessing, os
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
[os.cpu_count(), len(os.sched_getaffinity(0)), multiprocessing.cpu_count(), ProcessPoolExecutor()._max_workers,
 ThreadPoolExecutor()._max_workers, os.environ["POLARS_MAX_THREADS"], os.environ["OMP_NUM_THREADS"]]
"""
    assert make_sandbox().run(code).result == [1, 1, 1, 1, 5, "1", "1"]
