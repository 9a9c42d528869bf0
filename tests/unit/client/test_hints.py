"""Hints for each reason, in the command and in the documentation."""

from pathlib import Path

import pytest

from mcp_exec_api.code_execution import Reason
from mcp_exec_client.doctor.hints import PROBLEMS, REASONS, SERVERS, hint_for_reason
from mcp_exec_client.doctor.report import CheckReport
from mcp_exec_gateway.http.problems import TITLES

PAGE = (Path(__file__).parents[3] / "docs" / "kubectl" / "troubleshooting.md").read_text()


def test_each_reason_has_a_hint_and_a_row_that_says_the_same() -> None:
    assert set(REASONS) == set(Reason) - {Reason.NONE}
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in PAGE.splitlines()}
    for reason, hint in REASONS.items():
        assert rows[f"`{reason}`"].endswith(f" | {hint} |"), f"{reason}: {hint}"


def test_reasons_of_servers_are_known_too() -> None:
    assert hint_for_reason("ImagePullFailed") == REASONS[Reason.IMAGE_PULL_FAILED]
    assert hint_for_reason("CrashLoop") == SERVERS["CrashLoop"]
    assert "troubleshooting" in hint_for_reason("Unheard")


def test_problems_with_hints_are_problems_of_the_gateway() -> None:
    assert set(PROBLEMS) <= set(TITLES)


def test_a_line_is_one_whatever_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    report = CheckReport()
    report.problem("pool\n", "a\x1b[31m\r\nb" + "x" * 5000, "look")
    report.ok("key", "fine")
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("problem  pool: a [31m bxxx")
    assert len(first) < 700
    assert (second, report.problems) == ("ok       key: fine", 1)
