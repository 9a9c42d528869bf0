"""Command lines of the documentation, and what the page of the command line says of exit codes."""

import re
import shlex
from pathlib import Path

import pytest

from mcp_exec_client.cli.connection import KUBECTL
from mcp_exec_client.cli.exit_codes import ExitCode
from mcp_exec_client.cli.main import PROGRAM, build_parser

DOCS = Path(__file__).parents[3] / "docs"
LINE = re.compile(r"^(?:    )?(?:\$ )?((?:kubectl )?mcp-exec (?:[^|>`\n\\]|\\\n)*)", re.MULTILINE)
BLOCK = re.compile(r"^```\w*\n.*?^```$|(?:^    .*\n)+", re.MULTILINE | re.DOTALL)


def command_lines(page: Path) -> list[list[str]]:
    blocks = "\n".join(BLOCK.findall(page.read_text()))
    return [shlex.split(line.replace("\\\n", " "), comments=True) for line in LINE.findall(blocks)]


def test_each_command_line_of_the_pages_is_accepted_by_the_parser(capsys: pytest.CaptureFixture[str]) -> None:
    pages = [page for page in DOCS.rglob("*.md") if page.parent.name != "reference"]
    found = [(page, words) for page in pages for words in command_lines(page)]
    assert len(found) > 15
    for page, words in found:
        program = KUBECTL if words[0] == "kubectl" else PROGRAM
        try:
            build_parser(program).parse_args(words[len(program.split()) :])
        except SystemExit:
            pytest.fail(f"{page.relative_to(DOCS)}: {' '.join(words)}: {capsys.readouterr().err}")


def test_the_page_has_the_exit_codes_of_runs() -> None:
    rows = re.findall(r"^\| (\d+) \|", (DOCS / "services" / "command-line.md").read_text(), re.MULTILINE)
    assert {int(row) for row in rows} == set(ExitCode) - {ExitCode.USAGE, ExitCode.BROKEN_PIPE}
