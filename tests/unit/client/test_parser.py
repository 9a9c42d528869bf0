"""The parser of `mcp-exec`."""

from pathlib import Path

import pytest

from mcp_exec_api import constants
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_client.cli.completion import find_arguments, find_options, walk
from mcp_exec_client.cli.connection import KUBECTL
from mcp_exec_client.cli.main import build_parser, main
from mcp_exec_client.cli.options import CODE_REASONS, MAX_TIMEOUT_SECONDS, REFUSALS, ExitCode


@pytest.mark.parametrize("program", ["mcp-exec", KUBECTL])
def test_each_command_describes_itself_and_all_its_options_in_the_name_that_was_called(program: str) -> None:
    for parser in walk(build_parser(program)):
        assert parser.description
        assert all(action.help for action in [*find_options(parser), *find_arguments(parser)])
        assert not parser.allow_abbrev
        lines = [line.strip() for line in parser.format_help().splitlines()]
        assert program == "mcp-exec" or not [line for line in lines if line.startswith("mcp-exec ")]


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["run", "a.py", "-c", "1"],
        ["run", "-c", "1", "--time", "3"],
        ["run", "-c", "1", "--timeout", "3601"],
        ["run", "-c", "1", "--context", "a"],
        ["run", "-c", "1", "--context", "a:={"],
        ["run", "-c", "1", "--label", "=x"],
        ["run", "-c", "1", "--use-case", "fun"],
        ["get", "-o", "xml"],
        ["get", "--include-code"],
        ["get", "a", "--phase", "Failed"],
        ["tools", "show", "create_issue"],
        ["tools"],
        ["cancel"],
        ["approve", "exec"],
        ["completion", "tcsh"],
    ],
)
def test_wrong_options_end_with_their_own_exit_code(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == ExitCode.USAGE


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"\xff", "is not UTF-8 at byte 0"), (b"#" * 262_145, "more than 262144 bytes"), (None, "can't be read: No such")],
)
def test_code_that_can_not_be_sent_is_refused_before_it_is(
    tmp_path: Path, content: bytes | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "code.py"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SystemExit) as ended:
        main(["run", str(path), "--gateway", "http://127.0.0.1:1"])
    assert ended.value.code == ExitCode.USAGE
    assert said in capsys.readouterr().err


def test_the_reasons_with_an_exit_code_exist() -> None:
    assert set(map(str, Reason)) >= CODE_REASONS | REFUSALS


def test_the_longest_time_of_code_is_the_api_s() -> None:
    assert MAX_TIMEOUT_SECONDS == constants.MAX_TIMEOUT_SECONDS
