"""What a terminal receives of hostile texts."""

import io
import json

import pytest

from mcp_exec_client.cli.output import TableColumn, TextWriter, age, escape, escape_line, print_data, print_objects
from mcp_exec_client.cli.printer import EventPrinter, ProgressBar, describe_progress

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp\x7f"


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_control_characters_are_shown_as_escapes() -> None:
    assert escape(HOSTILE) == "\\x1b]0;owned\\x07\\x1b[2J\\x9b31m\\u202egnp\\x7f"
    assert escape("tab\tline\nüñ 三 👩‍👩‍👧 \ud800") == "tab\tline\nüñ 三 👩‍👩‍👧 \\ud800"
    assert escape_line("a\nb\tc\r") == "a\\nb c\\r"


def test_output_is_escaped_for_a_terminal_and_passed_on_to_a_pipe() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        TextWriter(stream).write(HOSTILE)
    assert terminal.getvalue() == escape(HOSTILE)
    assert pipe.getvalue() == HOSTILE


def test_a_traceback_is_escaped_wherever_it_goes(capsys: pytest.CaptureFixture[str]) -> None:
    traceback = f"Traceback (most recent call last):\nValueError: bad\x00 {HOSTILE}\n"
    EventPrinter("made", program="mcp-exec").show({"type": "end", "error": {"traceback": traceback}})
    assert capsys.readouterr().err == f"Traceback (most recent call last):\nValueError: bad\\x00 {escape(HOSTILE)}\n"


def test_a_carriage_return_starts_a_line_on_a_terminal_so_that_nothing_is_overwritten() -> None:
    terminal = Terminal()
    writer = TextWriter(terminal)
    for text in ("10%\r20%\r", "\nnext\r\n", "end"):
        writer.write(text)
    assert terminal.getvalue() == "10%\n20%\nnext\nend"
    writer.end_line()
    writer.end_line()
    assert terminal.getvalue().endswith("end\n")


@pytest.mark.parametrize(
    ("event", "line"),
    [
        ({"done": 5, "total": 10, "text": "pages"}, "[###############...............]  50% 5/10 pages"),
        ({"done": 20, "total": 10}, "[##############################] 100% 20/10"),
        ({"done": 3, "total": None, "text": "\x1b[2J"}, "3 \\x1b[2J"),
        ({"done": 1, "total": 0}, "1"),
        ({"done": "many", "total": float("nan")}, "0"),
    ],
)
def test_progress_is_one_line_whatever_the_code_reports(event: dict[str, object], line: str) -> None:
    assert describe_progress(event) == line


def test_progress_is_lines_unless_it_goes_to_a_terminal() -> None:
    pipe = io.StringIO()
    bar = ProgressBar(pipe)
    for done in (1, 1, 2):
        bar.update({"done": done, "total": 2})
    assert [line.split()[-1] for line in pipe.getvalue().splitlines()] == ["1/2", "2/2"]


def test_a_bar_is_removed_before_other_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    bar = ProgressBar(terminal)
    bar.update({"done": 1, "total": 2})
    bar.hide()
    bar.hide()
    assert terminal.getvalue().endswith("1/2\r\x1b[K")


def test_tables_are_escaped_everywhere_and_json_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = [
        TableColumn(title="A", cell=lambda item: item["a"]),
        TableColumn(title="B", cell=lambda item: None, wide=True),
    ]
    item = {"a": HOSTILE + "\n" + "x" * 300}
    print_objects([item], form="table", columns=columns, name=str)
    table = capsys.readouterr().out
    assert escape_line(table.replace("\n", "")) == table.replace("\n", "")
    assert len(table.splitlines()) == 2
    for form in ("json", "yaml"):
        terminal = Terminal()
        monkeypatch.setattr("sys.stdout", terminal)
        print_data({"ü": HOSTILE}, form=form)
        assert escape(terminal.getvalue()) == terminal.getvalue()
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    print_data({"ü": "三"}, form="json")
    assert json.loads(terminal.getvalue()) == {"ü": "三"}
    assert "三" in terminal.getvalue()


def test_ages_are_short_and_wrong_times_have_none() -> None:
    assert age("2020-01-01T00:00:00Z").endswith("d")
    assert [age(value) for value in (None, "yesterday", "2020-01-01")] == ["", "", ""]
