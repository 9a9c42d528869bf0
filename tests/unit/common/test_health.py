"""Responses to the probes of every process."""

import pytest

from mcp_exec_common.process.health import report_liveness, report_readiness


def test_a_process_is_alive_until_something_has_failed_for_good() -> None:
    assert (report_liveness().status_code, report_liveness().body) == (200, {"status": "ok"})
    report = report_liveness(["sync of ToolServers"])
    assert (report.status_code, report.body) == (503, {"status": "failed", "failed": ["sync of ToolServers"]})


@pytest.mark.parametrize(
    ("missing", "stopping", "code", "status"),
    [
        ([], False, 200, "ready"),
        (["pools"], False, 503, "starting"),
        ([], True, 503, "stopping"),
        (["pools"], True, 503, "stopping"),
    ],
)
def test_a_process_is_ready_while_nothing_is_missing_and_it_does_not_stop(
    missing: list[str], stopping: bool, code: int, status: str
) -> None:
    report = report_readiness(missing, stopping=stopping, role="leader")
    assert (report.status_code, report.body) == (code, {"status": status, "missing": missing, "role": "leader"})
