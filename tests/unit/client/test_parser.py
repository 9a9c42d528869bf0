"""The parser of `mcp-exec`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mcp_exec_api.reasons.execution import Reason
from mcp_exec_client.cli.completion import find_arguments, find_options, walk
from mcp_exec_client.cli.connection import KUBECTL
from mcp_exec_client.cli.exit_codes import CODE_REASONS, REFUSALS, ExitCode
from mcp_exec_client.cli.main import build_parser, kubectl_main, main


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
        ["run", "-c", "1", "--skill-ref", "chart"],
        ["run", "--skill-ref", ""],
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
    ("given", "said"),
    [
        (["--output-bytes", "1023"], "argument --output-bytes: must be between 1024 and 262144"),
        (["--output-bytes", "64k"], "argument --output-bytes: invalid number value: '64k'"),
        (["--tool-calls", "-1"], "argument --tool-calls: must be between 0 and 10000"),
        (["--approval-timeout", "3601"], "argument --approval-timeout: must be between 0 and 3600"),
        (["--ttl", "2592001"], "argument --ttl: must be between 0 and 2592000"),
        (["--priority", "Urgent"], "argument --priority: invalid choice: 'Urgent'"),
    ],
)
def test_a_value_of_another_kind_or_beyond_its_bounds_is_an_error_that_names_the_flag(
    given: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "-c", "1", *given])
    assert ended.value.code == ExitCode.USAGE
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("entry", [main, kubectl_main])
@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["rnu", "-c", "1"], "run"),
        (["session"], "sessions"),
        (["skills", "aprrove", "report"], "approve"),
        (["run", "-c", "1", "--poool=large"], "--pool"),
        (["run", "-c", "1", "--time-out=5"], "--timeout"),
        (["sessions", "list", "--usr", "ana"], "--user"),
        (["run", "-c", "1", "--priority", "Hihg"], "High"),
    ],
)
def test_a_word_that_no_command_has_is_refused_with_the_one_that_may_be_meant(
    entry: Callable[[list[str]], None], given: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        entry(given)
    assert ended.value.code == ExitCode.USAGE
    assert capsys.readouterr().err.endswith(f"; did you mean {meant}?\n")


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
