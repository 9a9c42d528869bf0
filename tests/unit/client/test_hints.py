"""Hints for each reason, in the command and in the documentation."""

from pathlib import Path

import pytest

from mcp_exec_api.reasons.execution import Reason
from mcp_exec_api.reasons.server import ServerReason
from mcp_exec_api.wire.problems import PROBLEM_TITLES
from mcp_exec_client.cli.backends.checks import PROBLEMS, CheckReport, hint_for_reason, hint_for_server_reason

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "kubectl" / "troubleshooting.md").read_text()
SERVERS_PAGE = (DOCS / "platform" / "tool-servers.md").read_text()


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason is not Reason.NONE])
def test_each_reason_has_a_remedy_and_a_row_of_the_documentation_that_says_the_same(reason: Reason) -> None:
    assert hint_for_reason(reason) == reason.remedy
    assert f"| `{reason}` | {reason.meaning} | {reason.remedy} |" in PAGE.splitlines()


@pytest.mark.parametrize("reason", ServerReason)
def test_each_reason_of_a_server_has_a_remedy_and_a_row_on_the_page_that_the_hint_names(reason: ServerReason) -> None:
    assert hint_for_server_reason(reason) == f"{reason.remedy} (see docs/platform/tool-servers.md#status)"
    assert f"| `{reason}` | {reason.meaning} | {reason.remedy} |" in SERVERS_PAGE.splitlines()


def test_an_unknown_reason_leads_to_its_page() -> None:
    assert "troubleshooting" in hint_for_reason("Unheard")
    assert "tool-servers.md" in hint_for_server_reason("Unheard")


def test_problems_with_hints_are_problems_of_the_gateway() -> None:
    assert set(PROBLEMS) <= set(PROBLEM_TITLES)


def test_a_line_is_one_whatever_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    report = CheckReport()
    report.problem("pool\n", "a\x1b[31m\r\nb" + "x" * 5000, "look")
    report.ok("key", "fine")
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("problem  pool: a [31m bxxx")
    assert len(first) < 700
    assert (second, report.problems) == ("ok       key: fine", 1)
