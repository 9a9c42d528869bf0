"""CPU time and memory of a run, as its last event reports them."""

import contextlib
import json

BUSY = """
import time
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
"""


def test_cpu_time_counts_work_and_no_waiting(sandbox):
    run = sandbox.run(BUSY + "burn(0.3)\ntime.sleep(0.2)\n")
    assert run.phase == "Succeeded"
    assert 0.25 < run.end["cpuSeconds"] < run.end["runMs"] / 1000 - 0.1


def test_a_run_that_does_nothing_uses_next_to_no_cpu_time(sandbox):
    assert 0 <= sandbox.run("1").end["cpuSeconds"] < 0.2


def test_cpu_time_of_ended_child_processes_counts(sandbox):
    code = BUSY + "import os\npid = os.fork()\nif pid == 0:\n    burn(0.3)\n    os._exit(0)\nos.waitpid(pid, 0)\n"
    assert sandbox.run(code).end["cpuSeconds"] > 0.25


def test_cpu_time_of_processes_that_are_killed_counts(sandbox):
    code = BUSY + "import os\nos.fork()\nburn(0.3)\nprint('burned', flush=True)\nburn(60)\n"
    with contextlib.closing(sandbox.start(code)) as stream:
        lines, said = stream.iter_lines(), ""
        while said.count("burned") < 2:  # on a busy machine, this takes its time
            said += json.loads(next(lines)).get("text", "")
        assert sandbox.client.delete("/v1/execution").status_code == 202
        *_, end = [json.loads(line) for line in lines]
    assert end["phase"] == "Cancelled"
    # /proc shows the time of the other process in steps of 10 ms
    assert end["cpuSeconds"] > 0.55
    assert end["peakMemoryBytes"] > 1024 * 1024
