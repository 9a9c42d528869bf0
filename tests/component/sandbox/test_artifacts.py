"""What code shows or writes to the folder of artifacts, as files of a real sandbox at a fake of the broker."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.files_server import FakeFiles


@pytest.fixture
def sandbox(reused):
    return reused


@pytest.fixture
def files() -> Iterator[FakeFiles]:
    made = FakeFiles()
    yield made
    made.close()


def artifacts_of(run: Any) -> dict[str, dict[str, Any]]:
    return {event["name"]: event for event in run.events if event["type"] == "artifact"}


SHOW = """
import pathlib
from client import show as the_same
assert show is the_same
show("id,name\\n1,a", name="rows.csv", title="Rows\\nof two lines", media_type="text/csv; charset=utf-8")
show({"a": [1]})
show(b"\\x89PNG\\r\\n\\x1a\\nrest", name="picture")
pathlib.Path("report.pdf").write_bytes(b"%PDF-")
show(pathlib.Path("report.pdf"))
class View:
    def _repr_html_(self): return "<b>x</b><script>1</script>"
    def __repr__(self): return "a view"
show(View(), title="A view")
pathlib.Path("artifacts/sub").mkdir()
pathlib.Path("artifacts/sub/own.txt").write_text("x" * 5000)
for wrong in ("../x", "a/b", "", 5):
    try:
        show(1, name=wrong)
        raise AssertionError(wrong)
    except ValueError as error:
        message = str(error)
show("a,b", "plain.csv")
show("last")
"""


def test_what_is_shown_and_what_is_in_the_folder_are_artifacts(sandbox: Any, files: FakeFiles) -> None:
    run = sandbox.run(SHOW, files=files.job(mode=None))
    assert (run.phase, run.stderr, run.error, run.has_result) == ("Succeeded", "", None, False)
    found = artifacts_of(run)
    assert {name: (each["mediaType"], each["title"]) for name, each in found.items()} == {
        "rows.csv": ("text/csv", "Rows of two lines"),
        "data-1.json": ("application/json", ""),
        "picture.png": ("image/png", ""),
        "report.pdf": ("application/pdf", ""),
        "view-1.html": ("text/html", "A view"),
        "plain.csv": ("text/csv", ""),
        "text-1.txt": ("text/plain", ""),
        "own.txt": ("text/plain", ""),
    }
    assert found["rows.csv"]["preview"] == "id,name\n1,a"
    assert found["view-1.html"]["preview"] == "a view"
    assert len(found["own.txt"]["preview"]) == 2000
    assert [each["name"] for each in files.artifacts] == list(found)
    assert b"<b>x</b>" in files.artifacts[4]["data"]
    assert all(each["id"] == each["sha256"][:16] for each in found.values())
    assert [event["type"] for event in run.events][-2:] == ["artifact", "end"]


FIGURES = """
import matplotlib.pyplot as plt
import pandas as pd
plt.plot([1, 2])
plt.title("First")
plt.show()
figure, axes = plt.subplots()
axes.set_title("Second")
axes.plot([1])
show(figure, "second", title="The second")
plt.figure()
plt.bar([1, 2], [3, 4])
plt.xlabel("Month")
show(pd.DataFrame({"a": range(1000), "b": "<script>"}), "table")
"""


def test_figures_and_tables_are_shown_as_in_a_notebook(sandbox: Any, files: FakeFiles) -> None:
    pytest.importorskip("matplotlib")
    run = sandbox.run(FIGURES, files=files.job(mode=None), timeoutSeconds=60)
    assert (run.phase, run.error) == ("Succeeded", None)
    found = artifacts_of(run)
    assert {name: each["preview"].splitlines()[0] for name, each in found.items()} == {
        "figure-1.png": "figure: title 'First'",
        "second.png": "figure: title 'Second'",
        "figure-2.png": "figure: x 'Month'",
        "table.html": "1000 rows x 2 columns",
    }
    data = {each["name"]: each["data"] for each in files.artifacts}
    assert all(data[name].startswith(b"\x89PNG") for name in data if name.endswith(".png"))
    assert (data["table.html"].count(b"<tr"), b"<script>" in data["table.html"]) == (501, False)
    assert "500 x 2 are shown" in data["table.html"].decode()


FORGED = [
    {"type": "artifact", "path": "../../etc/passwd"},
    {"type": "artifact", "path": "link"},
    {"type": "artifact", "path": 5},
    {"type": "artifact", "path": "a.svg", "mediaType": "Text/HTML; x=\"'", "title": 5, "preview": "y" * 10_000},
]


def test_hostile_artifacts_are_bounded_and_lead_nowhere(sandbox: Any, files: FakeFiles) -> None:
    lines = "".join(json.dumps(message) + "\n" for message in FORGED)
    code = f"""
import os, pathlib
os.symlink("/proc/self/environ", "artifacts/link")
os.mkfifo("artifacts/pipe")
pathlib.Path("artifacts/a.svg").write_text("<svg/>")
pathlib.Path("artifacts/large").write_bytes(bytes(2_000_000))
for number in range(60):
    pathlib.Path(f"artifacts/many-{{number:02}}").write_text(str(number))
os.write(3, {lines!r}.encode())
print("no line break", end="", file=__import__("sys").stderr)
"""
    run = sandbox.run(code, files=files.job(mode=None))
    found = artifacts_of(run)
    assert len(found) == 32
    assert (found["a.svg"]["mediaType"], found["a.svg"]["title"]) == ("text/html", "")
    assert len(found["a.svg"]["preview"]) <= 2000
    assert not {"link", "pipe", "passwd", "large"} & set(found)
    assert run.stderr == "no line break"
    *notes, last = run.end["notes"]
    assert {note["kind"] for note in notes} == {"FileNotKept"}
    assert all(note["message"].startswith("not kept as an artifact: ") for note in notes)
    assert (len(notes), last["kind"]) == (15, "NotesDropped")
    assert run.phase == "Succeeded"


def test_a_folder_that_is_a_link_is_not_followed(sandbox: Any, files: FakeFiles) -> None:
    run = sandbox.run(
        "import os\nos.rmdir('artifacts')\nos.symlink('/proc/self', 'artifacts')", files=files.job(mode=None)
    )
    assert (artifacts_of(run), files.requests) == ({}, [])
    assert "not kept as an artifact: the folder artifacts" in run.end["notes"][0]["message"]


def test_what_was_shown_before_a_time_out_is_kept_and_not_after_a_cancellation(
    make_sandbox: Any, files: FakeFiles
) -> None:
    late = make_sandbox().run("show('x')\nwhile True: pass", files=files.job(), timeoutSeconds=0.2)
    assert (late.phase, list(artifacts_of(late))) == ("TimedOut", ["text-1.txt"])


def test_artifacts_are_no_part_of_the_workspace(sandbox: Any, files: FakeFiles) -> None:
    run = sandbox.run("show('x')\nopen('kept', 'w').write('y')", files=files.job())
    assert (list(artifacts_of(run)), files.texts()) == (["text-1.txt"], {"kept": "y"})


def test_where_nothing_is_kept_a_note_says_so(sandbox: Any) -> None:
    run = sandbox.run("show('x')\n1")
    assert (run.phase, run.result, artifacts_of(run)) == ("Succeeded", 1, {})
    message = "the files in the folder artifacts are not kept: this installation stores none"
    assert run.end["notes"] == [{"kind": "FileNotKept", "path": "", "message": message}]


def test_a_store_that_fails_costs_artifacts_and_nothing_else(sandbox: Any, files: FakeFiles) -> None:
    files.intercept = lambda path: (503, b'{"reason": "Unavailable", "message": "the store is full"}')
    run = sandbox.run("show('x')\n1", files=files.job(mode=None))
    assert (run.phase, run.result, artifacts_of(run)) == ("Succeeded", 1, {})
    message = "not kept as an artifact: 'text-1.txt' and what follows: the store is full"
    assert run.end["notes"] == [{"kind": "FileNotKept", "path": "", "message": message}]


def test_a_program_may_use_the_name_for_something_else(sandbox: Any) -> None:
    assert sandbox.run("show = 5\nshow").result == 5
