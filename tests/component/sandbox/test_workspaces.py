"""A workspace's files around a run: put in place, changed, saved; by a real supervisor and a fake of the broker."""

import hashlib
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from tests.component.sandbox.test_reuse import OWNER, children_of, recycle
from tests.support.files_server import FakeFiles
from tests.support.until import eventually


@pytest.fixture
def files() -> Iterator[FakeFiles]:
    made = FakeFiles()
    yield made
    made.close()


def count(files: FakeFiles, path: str) -> int:
    return sum(request.endswith(path) for request in files.requests)


CHANGES = """
import os, pathlib
listed = sorted(str(path) for path in pathlib.Path(".").rglob("*") if path.is_file())
read = open("a/one.txt").read()
pathlib.Path("a/one.txt").write_text("changed")
os.unlink("two.txt")
pathlib.Path("new/deep").mkdir(parents=True)
pathlib.Path("new/deep/three.sh").write_text("#!/bin/sh")
os.chmod("new/deep/three.sh", 0o755)
[listed, read]
"""


def test_files_are_in_place_before_the_code_and_its_changes_are_saved_after_it(sandbox: Any, files: FakeFiles) -> None:
    files.commit(a__one="x", a__same="y", two="z")
    files.versions[-1] = {f"{path}.txt": file for path, file in files.versions[-1].items()}
    run = sandbox.run(CHANGES, files=files.job())
    assert run.result == [["a/one.txt", "a/same.txt", "two.txt"], "x"]
    assert run.end["workspace"] == {"base": 1, "version": 2, "changedFiles": 3, "bytes": 17, "leftOut": 0}
    assert files.texts() == {"a/one.txt": "changed", "a/same.txt": "y", "new/deep/three.sh": "#!/bin/sh"}
    assert [mode for _, mode in files.versions[-1].values()] == [0o644, 0o644, 0o755]
    assert len(files.uploaded) == 2
    assert (run.phase, run.reason, run.stderr) == ("Succeeded", "", "")


def test_a_run_that_changes_nothing_saves_nothing(sandbox: Any, files: FakeFiles) -> None:
    files.commit(a="x")
    code = "import os\nos.utime('a')\nopen('a').read()"
    run = sandbox.run(code, files=files.job())
    assert run.result == "x"
    assert run.end["workspace"] == {"base": 1, "version": 1, "changedFiles": 0, "bytes": 1, "leftOut": 0}
    assert files.requests == ["GET /v1/files/manifest", "POST /v1/files/blobs/get"]


def test_a_write_that_leaves_no_trace_is_noticed_in_a_small_workspace(sandbox: Any, files: FakeFiles) -> None:
    files.commit(a="x" * 8)
    code = """
import os, time
status = os.stat("a")
open("a", "w").write("y" * 8)
while os.stat("a").st_mtime_ns != status.st_mtime_ns:
    os.utime("a", ns=(status.st_atime_ns, status.st_mtime_ns))
"""
    run = sandbox.run(code, files=files.job())
    assert (run.end["workspace"]["version"], files.texts()) == (2, {"a": "y" * 8})


def test_a_reader_has_a_copy_and_its_changes_are_dropped(sandbox: Any, files: FakeFiles) -> None:
    files.commit(a="x")
    run = sandbox.run("open('a', 'a').write('y')\nopen('a').read()", files=files.job("Read"))
    assert (run.result, run.end["workspace"]) == ("xy", {"base": 1})
    assert files.texts() == {"a": "x"}


def test_an_exception_does_not_lose_the_files_and_a_time_out_does(reused: Any, files: FakeFiles) -> None:
    failed = reused.run("open('a', 'w').write('1')\n1 / 0", files=files.job())
    assert (failed.reason, failed.end["workspace"]["version"]) == ("UserError", 1)
    late = reused.run("open('a', 'w').write('2')\nwhile True: pass", files=files.job(), timeoutSeconds=0.2)
    assert (late.phase, late.end["workspace"]) == ("TimedOut", {"base": 1})
    assert files.texts() == {"a": "1"}


def test_a_workspace_serves_both_languages(reused: Any, typescript: Any, files: FakeFiles) -> None:
    write = "Deno.mkdirSync('data');\nDeno.writeTextFileSync('data/rows.json', '[{\"name\": \"é\"}]');"
    assert typescript.run(write, files=files.job()).end["workspace"]["version"] == 1
    change = "import json, pathlib\npath = pathlib.Path('data/rows.json')\nrows = json.loads(path.read_text())\n"
    change += "path.write_text(json.dumps([*rows, {'name': 'python'}]))\nrows"
    changed = reused.run(change, files=files.job())
    assert (changed.result, changed.end["workspace"]["version"]) == ([{"name": "é"}], 2)
    read = "import rows from './data/rows.json' with { type: 'json' };\nrows"
    assert typescript.run(read, files=files.job("Read")).result == [{"name": "é"}, {"name": "python"}]


HOSTILE = """
import os, pathlib, socket
os.symlink("/proc/self/environ", "link")
os.symlink("/proc/1", "folder")
os.mkfifo("pipe")
socket.socket(socket.AF_UNIX).bind("socket")
pathlib.Path("line\\nbreak").write_text("x")
pathlib.Path(os.fsdecode(b"bytes\\xff")).write_text("x")
pathlib.Path("right\\u202eleft").write_text("x")
pathlib.Path("/".join("d" * 40)).mkdir(parents=True)
pathlib.Path("/".join("d" * 40) + "/deep").write_text("x")
pathlib.Path("plain").write_text("x")
os.link("plain", "second")
pathlib.Path("servers").mkdir()
pathlib.Path("servers/own.py").write_text("x")
"""


def test_what_is_no_plain_file_is_left_out_and_never_followed(sandbox: Any, files: FakeFiles) -> None:
    run = sandbox.run(HOSTILE, files=files.job())
    assert files.texts() == {"plain": "x", "second": "x"}
    assert (run.end["workspace"]["version"], run.end["workspace"]["leftOut"]) == (1, 8)
    notes = [note["message"] for note in run.end["notes"]]
    assert len(notes) == 8
    assert all(note.startswith("not saved to the workspace: '") for note in notes)
    assert any("'link': a symbolic link" in note for note in notes)


def test_modules_of_ones_own_in_the_folder_of_skills_are_saved_and_imported(reused: Any, files: FakeFiles) -> None:
    write = "import os\nos.mkdir('skills')\nopen('skills/own.py', 'w').write('def run(): return 5')"
    assert reused.run(write, files=files.job()).end["workspace"]["leftOut"] == 0
    assert reused.run("from skills.own import run\nrun()", files=files.job()).result == 5


PROCESS = """
import subprocess, sys
loop = "while True: open('busy', 'w').write('x' * 100); open('busy', 'w').write('y' * 50)"
process = subprocess.Popen([sys.executable, "-c", loop])
while not __import__("os").path.exists("busy"): pass
"""


def test_processes_of_the_code_are_stopped_before_anything_is_saved(sandbox: Any, files: FakeFiles) -> None:
    run = sandbox.run(PROCESS, files=files.job())
    assert (run.phase, run.end["workspace"].get("reason")) == ("Succeeded", None)
    assert set(files.texts()) == {"busy"}


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [("Conflict", "WorkspaceConflict"), ("TooLarge", "WorkspaceTooLarge"), ("NotAllowed", "WorkspaceUnavailable")],
)
def test_changes_that_are_refused_lose_nothing_of_the_run(
    reused: Any, files: FakeFiles, refusal: str, reason: str
) -> None:
    answer = json.dumps({"reason": refusal, "message": f"it is a {refusal}"}).encode()
    files.intercept = lambda path: (409, answer) if path.endswith("/commit") else None
    run = reused.run("print('out')\nopen('a', 'w').write('x')\n5", files=files.job())
    assert (run.phase, run.reason, run.stdout, run.result) == ("Succeeded", "", "out\n", 5)
    assert run.end["workspace"] == {"base": 0, "reason": reason, "message": f"it is a {refusal}"}
    message = f"the workspace was not saved: it is a {refusal}"
    assert run.end["notes"] == [{"kind": "FileNotKept", "path": "", "message": message}]


def test_a_lost_answer_is_asked_for_again_and_commits_once(sandbox: Any, files: FakeFiles) -> None:
    commits: list[bytes] = []

    def lose_first(path: str) -> tuple[int, bytes] | None:
        if path.endswith("/commit") and not commits:
            commits.append(b"")
            files.commit(a="x")  # it was committed, and its answer was lost
            return 0, b""
        return None

    files.intercept = lose_first
    run = sandbox.run("open('a', 'w').write('x')", files=files.job())
    assert (run.end["workspace"]["version"], len(files.versions)) == (1, 2)


def test_without_its_files_the_code_does_not_start(reused: Any, files: FakeFiles) -> None:
    files.intercept = lambda path: (404, b'{"reason": "NoWorkspace", "message": "there is no workspace notes"}')
    run = reused.run("print('ran')", files=files.job("Read"))
    assert (run.phase, run.reason, run.stdout) == ("Failed", "WorkspaceUnavailable", "")
    assert run.error["message"] == "the workspace's files are not in place: there is no workspace notes"
    assert [event["type"] for event in run.events] == ["end"]


def test_a_sandbox_whose_files_were_not_placed_is_used_again(sandbox: Any, files: FakeFiles) -> None:
    assert sandbox.client.get("/healthz").status_code == 200
    (template,) = children_of(sandbox.process.pid)
    files.intercept = lambda path: (404, b"{}")
    assert sandbox.run("1", owner=OWNER, files=files.job()).reason == "WorkspaceUnavailable"

    def is_template_alone() -> bool:
        return children_of(sandbox.process.pid) == [template] and not children_of(template)

    eventually(is_template_alone, what="the interpreter that ran nothing has ended")
    assert recycle(sandbox, "uid-1").status_code == 200
    assert sandbox.run("1", id="uid-2", owner=OWNER).phase == "Succeeded"


MANIFESTS = {
    "no JSON": b"<html>",
    "a path that leads out": ("../../etc/x", 1),
    "an absolute path": ("/etc/x", 1),
    "more files than it says": ("a", 0),
}


@pytest.mark.parametrize("problem", MANIFESTS)
def test_a_broken_manifest_ends_the_run_before_it_begins(reused: Any, files: FakeFiles, problem: str) -> None:
    given = MANIFESTS[problem]
    if isinstance(given, tuple):
        path, number = given
        head = {"id": "1", "version": 1, "files": number, "bytes": 1, **files.limits}
        lines = (head, {"path": path, "size": 1, "sha256": "0" * 64, "mode": 0o644})
        given = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    files.intercept = lambda path: (200, given)
    run = reused.run("1", files=files.job())
    assert (run.phase, run.reason) == ("Failed", "WorkspaceUnavailable")


def test_other_content_than_announced_is_not_put_in_place(sandbox: Any, files: FakeFiles) -> None:
    files.commit(a="x", b="y")
    for digest in files.contents:
        files.contents[digest] = b"?"
    run = sandbox.run("1", files=files.job())
    assert "other content than announced" in run.error["message"]
    assert os.listdir(sandbox.workspace) == ["artifacts"]


def test_a_cancelled_run_does_not_wait_for_its_files(sandbox: Any, files: FakeFiles) -> None:
    def cancel(path: str) -> None:
        assert sandbox.client.delete("/v1/execution").status_code == 202

    files.intercept = cancel
    files.commit(a="x")
    run = sandbox.run("1", files=files.job())
    assert (run.phase, run.reason) == ("Cancelled", "Cancelled")


def test_the_code_never_has_the_token_of_the_files(sandbox: Any, files: FakeFiles) -> None:
    code = """
import gc, os
os.environ, [name for name in gc.get_objects() if isinstance(name, str) and name.startswith("files-grant")]
"""
    run = sandbox.run(code, files=files.job())
    assert "files-grant" not in json.dumps(run.events)


def test_a_job_with_a_wrong_field_is_refused(idle: Any, files: FakeFiles) -> None:
    for change, message in [
        ({"url": "http://broker"}, "files.url: must be http://IP:PORT"),
        ({"token": ""}, "files.token: must be 1 to 16384 visible ASCII characters"),
        ({"workspace": {"name": "A", "mode": "Read"}}, "files.workspace.name: must be 1 to 50 lower-case letters"),
        ({"workspace": {"name": "a", "mode": "read"}}, "files.workspace.mode: must be Write or Read"),
        ({"workspace": {"name": "a", "mode": "Read", "x": 1}}, "files.workspace.x: unknown field"),
        ({"maxArtifacts": -1}, "files.maxArtifacts: must be an integer from 0"),
        ({"other": 1}, "files.other: unknown field"),
    ]:
        response = idle.start("1", files=files.job(**change))
        assert response.status_code == 400
        assert json.loads(response.read())["error"].startswith(message)


def test_a_session_fetches_nothing_that_it_has_and_undoes_what_was_not_saved(sandbox: Any, files: FakeFiles) -> None:
    files.commit(a="1", b="2")
    session = {"owner": "0a" * 16, "session": True}

    def run(uid: str, code: str, mode: str = "Write") -> Any:
        files.requests.clear()
        done = sandbox.run(code, files=files.job(mode), id=uid, **session)
        sandbox.client.get("/v1/execution")  # waits until it is idle
        return done

    first = run("one", "show('x', 'first.txt')\nkept = open('a').read()\nopen('new', 'w').write('n')")
    assert first.end["workspace"]["version"] == 2
    second = run("two", "[kept, open('new').read()]")
    assert (second.result, second.end["workspace"]["version"]) == (["1", "n"], 2)
    assert files.requests == ["GET /v1/files/manifest"]
    assert "artifact" not in [event["type"] for event in second.events]
    read = run("three", "open('a', 'w').write('dropped')", mode="Read")
    assert read.end["workspace"] == {"base": 2}
    files.versions.append({**files.versions[-1], "b": (b"theirs", 0o644)})
    files.contents |= {hashlib.sha256(b"theirs").hexdigest(): b"theirs"}
    third = run("four", "[open('a').read(), open('b').read(), open('new').read()]")
    assert (third.result, third.end["workspace"]["base"]) == (["1", "theirs", "n"], 3)
    assert third.end["workspace"]["changedFiles"] == 0


def test_files_are_saved_if_only_a_thread_runs_at_the_time_limit(make_sandbox: Any, files: FakeFiles) -> None:
    code = "import threading\nf = open('a.txt', 'w')\nf.write('kept')\n"
    code += "threading.Thread(target=threading.Event().wait).start()\n5"
    run = make_sandbox(grace_milliseconds="10000").run(code, files=files.job(), timeoutSeconds=1)
    assert (run.phase, run.reason, run.result) == ("TimedOut", "Timeout", 5)
    assert "1 thread was still running" in run.error["message"]
    assert run.end["workspace"]["version"] == 1
    assert files.texts() == {"a.txt": "kept"}
