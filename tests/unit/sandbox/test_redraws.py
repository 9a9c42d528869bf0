"""Redrawn lines keep their last state, however the text comes in pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_exec_sandbox.supervisor.execution.output import HeadTailBuffer
from mcp_exec_sandbox.supervisor.execution.redraws import MAX_HELD, RedrawnLines


def pass_through(*pieces: str) -> tuple[str, bool]:
    lines = RedrawnLines()
    return "".join(map(lines.write, pieces)) + lines.finish(), lines.has_dropped


def render(text: str) -> list[str]:
    """Return what a terminal shows, if it cleared each line at its redraw."""
    shown = []
    for line in text.split("\n"):
        state = ([part for part in line.split("\r") if part] or [""])[-1]
        drawn: list[str] = []
        cursor = 0
        for character in state:
            if character == "\b":
                cursor = max(0, cursor - 1)
            else:
                drawn[cursor : cursor + 1] = [character]
                cursor += 1
        shown.append("".join(drawn))
    return shown


CASES = {
    "a bar from the left": ("".join(f"\r{n}%" for n in range(101)) + "\ndone\n", "100%\ndone\n", True),
    "a bar to the right": ("".join(f"{n}%\r" for n in range(101)) + "\n", "100%\r\n", True),
    "a spinner": ("work " + "|\b/\b-\b\\\b" * 9 + " \n", "work  \n", True),
    "an erased word": ("abc\b\b\bxyz\n", "xyz\n", True),
    "a bar that is cleared": ("\r10%\r   \rdone\n", "done\n", True),
    "line breaks of Windows": ("a\r\nb\r\n", "a\r\nb\r\n", False),
    "one state": ("\rx\n", "x\n", False),
    "no line break at the end": ("\r1\r2", "2", True),
    "plain text": ("a\nb", "a\nb", False),
    "several lines": ("a\n\r1\r2\nb\n\r3\r4\nc", "a\n2\nb\n4\nc", True),
}


@pytest.mark.parametrize("name", CASES)
def test_a_redrawn_line_is_its_last_state(name: str) -> None:
    text, shown, dropped = CASES[name]
    assert pass_through(text) == (shown, dropped)


@pytest.mark.parametrize("name", CASES)
def test_it_is_shown_the_same_if_it_comes_in_single_characters(name: str) -> None:
    text, shown, _ = CASES[name]
    written, _ = pass_through(*text)
    assert render(written) == render(shown)
    assert len(written) <= len(shown) + 12


@given(st.lists(st.text("ab\r\b\n", max_size=12), max_size=12))
def test_what_is_written_is_shown_as_the_whole_text_is(pieces: list[str]) -> None:
    written, _ = pass_through(*pieces)
    assert render(written) == render("".join(pieces))


@given(st.lists(st.text("ab\n", max_size=12), max_size=12))
def test_plain_text_passes_at_once(pieces: list[str]) -> None:
    lines = RedrawnLines()
    assert [lines.write(piece) for piece in pieces] == pieces
    assert lines.finish() == ""


def test_a_beginning_that_was_written_before_stays() -> None:
    assert pass_through("first", "\rsecond", "\rthird", "\n")[0] == "first\rthird\n"
    assert pass_through("load |", "\b/", "\b-", "\n")[0] == "load |\b-\n"


def test_what_is_held_is_bounded() -> None:
    lines = RedrawnLines()
    written = sum(len(lines.write(f"\r{'x' * 1000}{'y' * 100}" * 10)) for _ in range(1000))
    assert (written, len(lines.finish())) == (0, 1100)
    assert len(lines.write("\r" + "x" * 10 * MAX_HELD)) == 10 * MAX_HELD


def test_a_line_with_very_many_backspaces_is_left_as_it_is() -> None:
    assert pass_through("a\b\b" * 1000 + "\n")[0] == "a\b\b" * 1000 + "\n"
    assert pass_through("|\b/\b" * 10_000 + "x\n") == ("x\n", True)


def test_a_long_output_of_bars_is_within_the_limit() -> None:
    stream = HeadTailBuffer(100, lines=RedrawnLines())
    head = "".join(stream.write(f"\r{n:5} of 2000".encode()) for n in range(2001))
    assert (head, *stream.finish()) == ("", " 2000 of 2000", False)
