"""Candidates of completion."""

from pathlib import Path

import pytest

from mcp_exec_client.cli.completion import find_candidates
from mcp_exec_client.cli.main import build_parser, kubectl_complete_main, main


def complete(*words: str) -> list[str]:
    return [word for word, _ in find_candidates(build_parser(), words)]


def test_commands_and_their_commands_are_completed() -> None:
    assert complete("ca") == ["cancel"]
    assert complete("tools", "") == ["search", "show"]
    assert complete("profile", "l") == ["list"]
    assert {"run", "get", "logs", "approve", "completion"} <= set(complete(""))


def test_options_and_their_values_are_completed() -> None:
    assert complete("run", "--ti") == ["--timeout"]
    assert complete("get", "-o", "w") == ["wide"]
    assert complete("get", "--phase", "T") == ["TimedOut"]
    assert complete("completion", "f") == ["fish"]
    assert complete("run", "--use-case", "") == ["filtering", "workflow", "polling", "other"]
    assert complete("run", "--name", "") == []


def test_files_are_left_to_the_shell() -> None:
    for words in (["run", ""], ["run", "--pool", "p", "prog"], ["get", "--kubeconfig", "x"]):
        assert complete(*words) == [":files"]
    assert complete("run", "program.py", "") == []


def test_profiles_are_completed(no_profile: Path) -> None:
    no_profile.parent.mkdir(parents=True)
    no_profile.write_text('[profiles.dev]\ngateway = "http://g"\n')
    assert complete("profile", "use", "") == complete("get", "--profile", "d") == ["dev"]


def test_names_of_executions_are_none_without_a_gateway_and_an_unknown_command_has_no_candidates() -> None:
    assert complete("logs", "exec") == []
    assert complete("nonsense", "") == complete("")


def test_the_hidden_command_prints_candidates_with_descriptions(capsys: pytest.CaptureFixture[str]) -> None:
    main(["__complete", "can"])
    assert capsys.readouterr().out == "cancel\tcancel executions\n"


def test_kubectl_receives_candidates_and_a_directive(capsys: pytest.CaptureFixture[str]) -> None:
    kubectl_complete_main(["can"])
    kubectl_complete_main(["run", ""])
    kubectl_complete_main(["agen"])
    assert capsys.readouterr().out == "cancel\tcancel executions\n:4\n:0\n:4\n"
