"""Notes of a run: what was cut or not kept, and what hostile code can make of them."""

import json
from typing import Any

import pytest

from mcp_exec_sandbox.protocol import KINDS, MAX_NOTES, NOTE_CHARACTERS

FORGED = [
    *({"kind": "ThreadsLeft", "path": "p" * 1000, "message": f"{number} " + "m" * 1000} for number in range(100)),
    {"kind": "Invented", "path": "", "message": "x"},
    {"kind": "ThreadsLeft", "path": 1, "message": ["x"]},
    "text",
]


def kinds_of(run: Any) -> list[str]:
    return [note["kind"] for note in run.end.get("notes", [])]


@pytest.fixture
def sandbox(reused):
    return reused


def test_a_run_that_loses_nothing_has_no_notes(sandbox: Any) -> None:
    run = sandbox.run("print('x')\n{'a': 1}")
    assert (run.phase, "notes" in run.end) == ("Succeeded", False)


def test_output_that_was_cut_is_noted_with_its_size(sandbox: Any) -> None:
    run = sandbox.run("print('x' * 5000)", outputBytes=1024)
    message = "Of 5001 bytes, the first and the last were kept, 1024 in all."
    assert run.end["notes"] == [{"kind": "OutputCut", "path": "stdout", "message": message}]


def test_a_result_that_was_cut_is_noted(sandbox: Any) -> None:
    run = sandbox.run("['x' * 5000]", outputBytes=1024)
    assert [(note["kind"], note["path"]) for note in run.end["notes"]] == [("OutputCut", "result")]


def test_a_value_that_json_cannot_express_is_noted_with_its_path(sandbox: Any) -> None:
    run = sandbox.run("{'rows': [{'price': float('nan')}], 'id': 2**64 + 3, 1: 'a', '1': 'b'}")
    assert run.result == {"rows": [{"price": None}], "id": "18446744073709551619", "1": "a", "1 (2)": "b"}
    places = [(note["kind"], note["path"]) for note in run.end["notes"]]
    assert places == [
        ("ValueChanged", "result.rows[0].price"),
        ("ValueChanged", "result.id"),
        ("KeysCollided", "result['1 (2)']"),
    ]


def test_forged_notes_are_bounded_and_displace_none_of_the_supervisor(sandbox: Any) -> None:
    report = {"type": "done", "hasValue": False, "notes": FORGED}
    line = f"{json.dumps(report)}\n".encode()
    code = f"import os\nprint('x' * 5000, flush=True)\nos.write(3, {line!r})\nwhile True: pass"
    run = sandbox.run(code, outputBytes=1024)
    notes = run.end["notes"]
    assert len(notes) == MAX_NOTES
    assert kinds_of(run)[0] == "OutputCut"
    assert all(len(note["message"]) <= NOTE_CHARACTERS and len(note["path"]) <= NOTE_CHARACTERS for note in notes)
    assert set(kinds_of(run)) <= set(KINDS)


PROGRESS = """import sys
for i in range(2001):
    print(f"\\r{i / 20:5.1f}% |{'#' * (i // 40):<50}| {i}/2000", end="", file=sys.{stream}, flush=True)
print("\\nfinished", file=sys.{stream})
"""


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_progress_bar_is_its_last_state_with_a_note(sandbox: Any, stream: str) -> None:
    run = sandbox.run(PROGRESS.replace("{stream}", stream), outputBytes=65536)
    assert getattr(run, stream) == f"100.0% |{'#' * 50}| 2000/2000\nfinished\n"
    note = {"kind": "OutputCut", "path": stream, "message": "Lines that were redrawn are here in their last state."}
    assert (run.end["notes"], run.end["truncated"]) == ([note], False)


def test_a_line_that_is_redrawn_comes_before_a_later_one(sandbox: Any) -> None:
    run = sandbox.run("import sys\nfor n in range(3): print(n, end='\\r', flush=True)\nprint('end')")
    assert run.stdout == "end\n"
