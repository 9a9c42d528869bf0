"""A session: one interpreter runs the owner's jobs one after the other, each as a run of its own."""

import os
import signal

import pytest
from tests.support.until import eventually

OWNER, OTHER = "0" * 32, "1" * 32


class Session:
    """The jobs of one session."""

    def __init__(self, sandbox):
        self.sandbox = sandbox
        self.jobs = 0

    def run(self, code, **fields):
        self.jobs += 1
        return self.sandbox.run(code, id=f"uid-{self.jobs}", owner=OWNER, session=True, **fields)

    def post(self, **fields):
        body = {"id": "next", "code": "1", "context": {}, "timeoutSeconds": 15, "outputBytes": 65536, **fields}
        return self.sandbox.client.post("/v1/execution", json=body)

    def report(self):
        return self.sandbox.client.get("/v1/session").json()


def read_stat(pid):
    """Return the fields of /proc/PID/stat from the process's state on."""
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()


@pytest.fixture
def session(sandbox):
    return Session(sandbox)


def test_variables_imports_and_files_stay(session):
    assert session.run("import math\nrows = context['rows']\nopen('kept', 'w').close()", context={"rows": [1, 2]}).end
    run = session.run(
        "import os\nrows.append(math.floor(3.5))\n[rows, sorted(os.listdir()), context]", context={"a": 1}
    )
    assert run.result == [[1, 2, 3], ["artifacts", "kept"], {"a": 1}]
    assert session.run("a, __name__, os.getcwd() == os.environ['HOME']").result == [1, "__main__", True]
    assert [event["seq"] for event in run.events] == [1, 2, 3]
    report = session.report()
    assert (report["executions"], report["alive"]) == (3, True)
    assert 1 << 20 < report["memoryBytes"] < 1 << 29
    state = session.sandbox.client.get("/v1/execution").json()
    assert (state["state"], state["id"], state["uses"]) == ("idle", "uid-3", 3)


def test_results_errors_and_output_belong_to_their_job(session):
    assert session.run("result = 1\ndef fail():\n    raise ValueError('why')\nprint('one')").result == 1
    assert not session.run("x = 2").has_result, "the result of an earlier job"
    assert session.run("result = 1").result == 1, "the same value once more"
    failed = session.run("\n\nfail()")
    assert (failed.reason, failed.error["line"]) == ("UserError", 3)
    assert 'File "<agent>", line 3, in fail\n    raise ValueError' in failed.error["traceback"]
    assert 'File "<agent 4>", line 3, in <module>\n    fail()' in failed.error["traceback"]
    assert session.run("raise SystemExit(3)").end["exitCode"] == 3
    silent = session.run("import sys, io\nsys.stdout = io.StringIO()\nprint('lost')")
    assert (silent.stdout, session.run("print('again')").stdout) == ("", "again\n")


def test_what_a_job_leaves_running_stands_still_between_jobs(session):
    code = """
import asyncio, itertools, os, subprocess, threading
count = 0
def work():
    global count
    for count in itertools.count():
        if count % 1000 == 0:
            print("thread")
threading.Thread(target=work, daemon=True).start()
child = subprocess.Popen(["sleep", "3600"])
task = asyncio.get_event_loop().create_task(asyncio.sleep(3600))
while count < 1000:
    pass
"""
    assert session.run(code).phase == "Succeeded"
    first = session.run("before = count\n[task.cancelled(), child.wait(), threading.active_count()]")
    assert first.result == [True, -signal.SIGKILL, 2]
    runner = session.run("os.getpid()").result
    eventually(lambda: read_stat(runner)[0] == "T", what="the interpreter is stopped")
    assert session.report()["alive"]
    assert session.run("count >= before").result is True


def test_an_interpreter_that_is_woken_between_jobs_is_stopped_again_and_its_time_counts(session):
    code = """
import os, threading
def work():
    while is_working:
        pass
is_working = True
threading.Thread(target=work).start()
os.getpid()
"""
    runner = session.run(code).result
    ticks = os.sysconf("SC_CLK_TCK")

    def read_cpu_ticks():
        return sum(map(int, read_stat(runner)[11:13]))

    eventually(lambda: read_stat(runner)[0] == "T", what="the interpreter is stopped")
    before = read_cpu_ticks()

    def has_worked():
        os.kill(runner, signal.SIGCONT)
        return read_cpu_ticks() - before > ticks / 2

    eventually(has_worked, what="the thread went on")
    eventually(lambda: read_stat(runner)[0] == "T", what="the interpreter is stopped again")
    run = session.run("is_working = False")
    assert run.end["cpuSeconds"] > 0.4
    assert session.run("1").end["cpuSeconds"] < 0.4, "each time counts once"


def test_a_session_survives_a_time_out_that_its_code_lets_interrupt_it(session):
    assert session.run("kept = 5").phase == "Succeeded"
    assert session.run("while True: pass", timeoutSeconds=0.2).reason == "Timeout"
    assert session.run("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nkept").result == 5
    second = session.run("\nwhile True: pass", timeoutSeconds=0.2)
    assert (second.reason, second.error["line"]) == ("Timeout", 2), "the handler is set back"
    assert session.run("kept").result == 5


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass", "Timeout"),
        ("import os\nos._exit(1)", "RunnerDied"),
        ("import os\nif os.fork() == 0: os.kill(os.getppid(), 9)\nwhile True: pass", "RunnerDied"),
    ],
)
def test_a_session_whose_interpreter_ended_is_lost_and_says_so(session, code, reason):
    assert session.run("kept = 5").phase == "Succeeded"
    assert session.run(code, timeoutSeconds=0.5).reason == reason
    assert session.report()["alive"] is False
    assert session.sandbox.client.get("/v1/execution").json()["state"] == "finished"
    answer = session.post(owner=OWNER, session=True)
    assert (answer.status_code, answer.json()["id"]) == (410, "uid-2")


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_session_whose_interpreter_dies_between_jobs_is_lost(session, is_stopped):
    runner = session.run("import os\nos.getpid()").result
    if is_stopped:  # and the process that would reap it
        eventually(lambda: read_stat(runner)[0] == "T", what="the interpreter is stopped")
    os.kill(runner, signal.SIGKILL)
    eventually(lambda: not session.report()["alive"], what="the end of the interpreter was seen")
    assert session.post(owner=OWNER, session=True).status_code == 410
    assert session.sandbox.process.poll() is None


def test_a_session_that_is_recycled_begins_again(session):
    assert session.run("kept = 5\nopen('kept', 'w').close()").phase == "Succeeded"
    for fields in ({}, {"owner": OWNER}, {"owner": OTHER, "session": True}):
        assert session.post(**fields).status_code == 409
    answer = session.sandbox.client.post("/v1/recycle", json={"id": "uid-1"})
    assert answer.json()["state"] == "idle"
    assert session.sandbox.client.get("/v1/session").status_code == 404
    run = session.run("import os\n['kept' in globals(), os.listdir()]")
    assert run.result == [False, ["artifacts"]]
    assert session.report()["executions"] == 1


def test_code_that_redefines_its_interpreter_harms_its_own_session_alone(session):
    code = """
import builtins, json, socket, sys
from mcp_exec_sandbox.runner import job
from mcp_exec_sandbox.runner import streams
job.JobRunner.run = lambda self, job: self._channel.send({"type": "done", "hasValue": True, "value": "forged"})
"""
    assert session.run(code).phase == "Succeeded"
    assert session.run("1").result == "forged"
    assert session.run("import os\nos._exit(0)").result == "forged"
    assert session.sandbox.client.post("/v1/recycle", json={"id": "uid-3"}).status_code == 200
    assert session.run("1").result == 1


def test_each_job_of_a_session_has_its_own_tools(session, broker):
    call = "await call_mcp_tool('github.get', {})"
    assert session.run(call, tools=broker.job).phase == "Succeeded"
    assert session.run(call, tools={**broker.job, "token": "x"}).error["type"] == "ToolDenied"
    assert session.run(call).error["type"] == "ToolDenied"
    assert session.run(call, tools=broker.job).phase == "Succeeded"
