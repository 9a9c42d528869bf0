"""A sandbox that serves its owner again: nothing of the run before is left, and nobody else is served.

The supervisor, which cleans and refuses, is the same in each language. What code of each language leaves is in
test_hostile.py; here is the code that only Python can run: it forks, and makes system calls by their numbers.
"""

import contextlib
import os
import signal

import pytest
from tests.component.sandbox.test_wrappers import wrappers
from tests.support.leftovers import LEAVE, LOOK, REFUSED, WITHOUT_MAIN_THREAD
from tests.support.until import eventually

OWNER, OTHER = "0" * 32, "1" * 32
OUTPUT = {"outputBytes": 1 << 20}


def recycle(sandbox, execution):
    return sandbox.client.post("/v1/recycle", json={"id": execution})


def post(sandbox, **fields):
    body = {"id": "uid-2", "code": "1", "context": {}, "timeoutSeconds": 15, "outputBytes": 65536, **fields}
    return sandbox.client.post("/v1/execution", json=body)


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]


def test_nothing_that_code_leaves_reaches_the_next_run(sandbox):
    first = sandbox.run(LOOK, id="1", owner=OWNER, **OUTPUT)
    assert first.phase == "Succeeded", first.error
    assert recycle(sandbox, "1").json()["state"] == "idle"
    left = sandbox.run(LEAVE, id="2", owner=OWNER, **OUTPUT)
    assert left.phase == "Succeeded", left.error
    assert left.result["left"] > 600
    assert left.result["others"] == 2, "the supervisor and the template"
    # the tests' users may read all folders, which a pod's may not
    outcomes = {name: each for name, each in left.result["outcome"].items() if not name.endswith("open files")}
    assert {name: each for name, each in outcomes.items() if each not in REFUSED and "attribute" not in name} == {}
    answer = recycle(sandbox, "2")
    assert (answer.status_code, answer.json()["uses"]) == (200, 2), answer.text
    second = sandbox.run(LOOK, id="3", owner=OWNER, **OUTPUT)
    assert second.phase == "Succeeded", second.error
    assert second.result["found"] == first.result["found"]
    assert second.result["random"] != first.result["random"]
    assert second.result["pid"] != first.result["pid"]


def lives(pid):
    """Return whether the kernel has a thread of a process that is not dead."""
    states = []
    for thread in os.listdir(f"/proc/{pid}/task") if os.path.exists(f"/proc/{pid}") else ():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/stat") as file:
            states.append(file.read().rpartition(")")[2].split()[0])
    return any(state not in "ZX" for state in states)


@pytest.mark.parametrize("session", [False, True])
def test_processes_without_a_main_thread_end_with_their_run(sandbox, session):
    run = sandbox.run(WITHOUT_MAIN_THREAD, id="1", owner=OWNER, session=session)
    assert run.phase == "Succeeded", run.error
    if not session:
        assert recycle(sandbox, "1").json()["uses"] == 1
        assert [pid for pid in run.result if os.path.exists(f"/proc/{pid}")] == [], "their numbers are free again"
    assert sandbox.run("1", id="2", owner=OWNER, session=session).result == 1
    assert [pid for pid in run.result if lives(pid)] == []


def test_a_sandbox_serves_one_owner_and_no_execution_twice(sandbox):
    assert sandbox.run("1", id="uid-1", owner=OWNER).phase == "Succeeded"
    assert recycle(sandbox, "uid-0").status_code == 409
    unclean = post(sandbox, owner=OWNER)
    assert (unclean.status_code, unclean.json()["id"]) == (409, "uid-1")
    assert recycle(sandbox, "uid-1").json()["uses"] == 1
    assert recycle(sandbox, "uid-1").json()["state"] == "idle", "a request that is repeated changes nothing"
    for fields in ({}, {"owner": OTHER}, {"owner": OTHER, "session": True}, {"owner": OWNER, "id": "uid-1"}):
        assert post(sandbox, **fields).status_code == 409
    assert sandbox.run("2", id="uid-2", owner=OWNER).result == 2
    events = sandbox.client.get("/v1/execution/events").text
    assert events.startswith('{"seq":1,'), "each execution has a log of its own"
    headers = {"Mcp-Exec-Execution": "uid-1"}
    assert sandbox.client.get("/v1/execution/events", headers=headers).status_code == 404
    assert sandbox.client.delete("/v1/execution", headers=headers).status_code == 409
    assert sandbox.client.get("/v1/execution").json()["uses"] == 2


def test_a_sandbox_without_an_owner_is_used_once(sandbox):
    assert sandbox.run("1").phase == "Succeeded"
    assert recycle(sandbox, "uid-1").status_code == 409
    assert post(sandbox, owner=OWNER).status_code == 409


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"owner": "0" * 31}, "owner"),
        ({"owner": "G" * 32}, "owner"),
        ({"owner": 5}, "owner"),
        ({"session": True}, "session"),
        ({"session": "yes", "owner": OWNER}, "session"),
    ],
)
def test_a_malformed_owner_is_refused(sandbox, fields, wrong):
    answer = post(sandbox, **fields)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(f"{wrong}: ")
    assert sandbox.client.get("/v1/execution").json()["state"] == "idle"


def test_a_sandbox_is_not_recycled_while_code_runs(sandbox):
    lines = sandbox.start("import signal\nprint(1)\nsignal.pause()", owner=OWNER).iter_lines()
    assert [next(lines), next(lines)]
    assert recycle(sandbox, "uid-1").status_code == 409
    assert sandbox.client.delete("/v1/execution").status_code == 202
    assert '"Cancelled"' in list(lines)[-1]
    assert recycle(sandbox, "uid-1").status_code == 200


def test_a_sandbox_whose_interpreter_ended_is_not_used_again(sandbox):
    assert sandbox.run("import os\nos._exit(3)", owner=OWNER).phase == "Failed"
    assert recycle(sandbox, "uid-1").status_code == 500
    assert post(sandbox, owner=OWNER).status_code == 409


def test_thousands_of_files_are_removed(sandbox):
    code = "import os\nopen('f', 'w').close()\nfor n in range(20000): os.link('f', f'l{n}')"
    assert sandbox.run(code, owner=OWNER).phase == "Succeeded"
    assert recycle(sandbox, "uid-1").status_code == 200
    assert [path.name for path in sandbox.workspace.iterdir()] == ["artifacts"]


def test_what_can_not_be_removed_ends_the_sandbox(sandbox):
    assert sandbox.run("import os; os.mkdir('folder')", owner=OWNER).phase == "Succeeded"
    foreign = sandbox.workspace / "folder" / "of-another-user"
    if os.getuid() != 0:
        pytest.skip("needs root to make a file of another user")
    foreign.mkdir()
    (foreign / "file").touch()
    answer = recycle(sandbox, "uid-1")
    assert (answer.status_code, "can't be emptied" in answer.json()["error"]) == (500, True)
    assert sandbox.client.get("/v1/execution").json()["state"] == "finished"


def test_a_template_that_ended_ends_the_sandbox(sandbox):
    assert sandbox.client.get("/healthz").status_code == 200
    (template,) = children_of(sandbox.process.pid)
    assert sandbox.run("1", owner=OWNER).phase == "Succeeded"
    os.kill(template, signal.SIGKILL)
    eventually(lambda: template not in children_of(sandbox.process.pid), what="the template has ended")
    assert recycle(sandbox, "uid-1").status_code == 500


def test_wrappers_serve_each_run_and_are_what_they_were(sandbox, broker):
    assert sandbox.client.put("/v1/wrappers", json=wrappers()).json() == {"hash": "h1"}
    use = "import os\nfrom servers.github import star\n[sorted(os.listdir('servers')), await star()]"
    break_all = "import pathlib\nfor path in pathlib.Path('servers').rglob('*.py'): path.write_text('left = 1')"
    tools = {**broker.job, "allow": ["github.*"], "wrappers": "h1"}
    first = sandbox.run(use, id="1", owner=OWNER, tools=tools)
    assert first.phase == "Succeeded", first.error
    assert recycle(sandbox, "1").status_code == 200
    assert sandbox.run(break_all, id="2", owner=OWNER, tools=tools).phase == "Succeeded"
    assert recycle(sandbox, "2").status_code == 200
    health = sandbox.client.get("/healthz").json()
    assert (health["state"], health["wrappers"]) == ("idle", "h1")
    assert sandbox.run(use, id="3", owner=OWNER, tools=tools).result == first.result
    assert recycle(sandbox, "3").status_code == 200
    assert sandbox.client.put("/v1/wrappers", json=wrappers("h2")).status_code == 200
    assert sandbox.run(use, id="4", owner=OWNER, tools=tools).result == first.result
