"""Progress that code reports, as events of a real sandbox."""

import json

import pytest

CODE = """
import sys
from decimal import Decimal
from client import progress as the_same
assert progress is the_same
print("before")
progress(1, 3, "read page 1")
print("after")
progress(Decimal("1.5"))
progress(2, 3, "x" * 300)
for number in range(2000):
    progress(number, 2000)
try:
    progress("half")
except TypeError as error:
    message = str(error)
progress(1999, 2000, "last")
message
"""


def reports_of(run):
    return [event for event in run.events if event["type"] == "progress"]


@pytest.fixture
def sandbox(reused):
    return reused


def test_reports_arrive_in_order_with_the_output_bounded_in_rate_and_the_last_always(sandbox):
    run = sandbox.run(CODE)
    assert run.result == "progress(done, total=None, text=''): done must be a number, not 'half'"
    assert [event["type"] for event in run.events[:4]] == ["status", "stdout", "progress", "stdout"]
    first, *_, last = reports_of(run)
    assert (first["done"], first["total"], first["text"]) == (1, 3, "read page 1")
    assert (last["done"], last["total"], last["text"]) == (1999, 2000, "last")
    assert len(reports_of(run)) < 200
    assert all(len(event["text"]) <= 200 for event in reports_of(run))


def test_a_program_may_use_the_name_for_something_else(sandbox):
    assert sandbox.run("progress = 5\nprogress").result == 5


def test_the_context_may_use_the_name_for_something_else(sandbox):
    assert sandbox.run("progress", context={"progress": "own"}).result == "own"


def test_reports_that_code_forges_are_dropped_or_bounded(sandbox):
    forged = [
        {"type": "progress", "done": "x", "total": None, "text": ""},
        {"type": "progress", "done": 1, "total": None, "text": 5},
        {"type": "progress", "done": True, "total": None, "text": ""},
        {"type": "progress", "done": 1e300, "total": None, "text": ""},
        {"type": "progress", "done": 7, "total": None, "text": "y" * 10_000},
    ]
    lines = "".join(json.dumps(message) + "\n" for message in forged)
    run = sandbox.run(f"import os\nos.write(3, {lines!r}.encode())\nNone")
    (report,) = reports_of(run)
    assert (report["done"], len(report["text"])) == (7, 200)
