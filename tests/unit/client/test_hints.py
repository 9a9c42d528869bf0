"""Hints for each reason, in the command and in the documentation."""

from pathlib import Path

import pytest

from mcp_exec_api.reasons import Reason
from mcp_exec_client.doctor.hints import PROBLEMS, SERVERS, hint_for_reason
from mcp_exec_client.doctor.report import CheckReport
from mcp_exec_gateway.http.problems import TITLES

PAGE = (Path(__file__).parents[3] / "docs" / "kubectl" / "troubleshooting.md").read_text()


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason is not Reason.NONE])
def test_each_reason_has_a_remedy_and_a_row_of_the_documentation_that_says_the_same(reason: Reason) -> None:
    assert hint_for_reason(reason) == reason.remedy
    assert f"| `{reason}` | {reason.meaning} | {reason.remedy} |" in PAGE.splitlines()


def test_reasons_of_servers_are_known_too() -> None:
    assert hint_for_reason("ImagePullFailed") == Reason.IMAGE_PULL_FAILED.remedy
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
