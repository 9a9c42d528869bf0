"""Judgement of the tasks that a real model does."""

from datetime import UTC, datetime

import pytest
from judgements import JUDGEMENTS, convert_time
from transcripts import ROOT, load_transcripts

TRANSCRIPTS = {each.task: each for each in load_transcripts()}


def answer_of(task: str) -> str:
    text: str = TRANSCRIPTS[task].arms["code"][-1]["content"][0]["text"]
    return text


def test_each_task_is_judged_by_its_answer_or_by_what_it_left() -> None:
    assert list(JUDGEMENTS) == list(TRANSCRIPTS)
    assert [task for task, each in JUDGEMENTS.items() if not each.answer and not each.after] == []


@pytest.mark.parametrize("task", [task for task in JUDGEMENTS if task != "convert a time"])
def test_the_answer_of_the_transcript_is_right(task: str) -> None:
    assert JUDGEMENTS[task].accepts(answer_of(task))


@pytest.mark.parametrize("task", [task for task, each in JUDGEMENTS.items() if each.answer])
def test_an_answer_that_says_nothing_is_wrong(task: str) -> None:
    assert not JUDGEMENTS[task].accepts("I could not find that out.")


@pytest.mark.parametrize("separator", [",", "", " "])
def test_thousands_may_be_separated(separator: str) -> None:
    text = answer_of("orders by status").replace(", ", "; ").replace(",", "")
    for number in ("82314", "869772", "50550", "238544"):
        text = text.replace(number, f"{number[:-3]}{separator}{number[-3:]}")
    assert JUDGEMENTS["orders by status"].accepts(text)
    assert not JUDGEMENTS["orders by status"].accepts(text.replace("314.71", "315.71"))


@pytest.mark.parametrize(("day", "time"), [((2026, 1, 15), "00:30"), ((2026, 7, 15), "23:30")])
def test_the_time_in_tokyo_depends_on_summer_time_in_berlin(day: tuple[int, int, int], time: str) -> None:
    assert convert_time(datetime(*day, tzinfo=UTC)).startswith(time)


def test_the_document_has_the_sections_that_the_answer_names() -> None:
    headings = [line for line in (ROOT / "docs/platform/security.md").read_text().splitlines() if line.startswith("#")]
    assert JUDGEMENTS["one section of a long document"].accepts("\n".join(headings))
