"""Phase and creation time of an execution's object, even if a newer version or a user wrote it."""

from typing import Any

import pytest

from mcp_exec_api.code_execution import Phase, is_finished, read_created_at, read_phase


@pytest.mark.parametrize(
    ("execution", "phase", "finished"),
    [
        ({}, Phase.PENDING, False),
        ({"status": None}, Phase.PENDING, False),
        ({"status": {"phase": ""}}, Phase.PENDING, False),
        ({"status": {"phase": "Running"}}, Phase.RUNNING, False),
        ({"status": {"phase": "TimedOut"}}, Phase.TIMED_OUT, True),
        ({"status": {"phase": "Suspended"}}, None, False),
    ],
)
def test_a_phase_is_read_even_if_it_is_unknown(execution: dict[str, Any], phase: Phase | None, finished: bool) -> None:
    assert read_phase(execution) is phase
    assert is_finished(execution) is finished


@pytest.mark.parametrize(
    ("status", "annotated", "created"),
    [
        ({}, None, "2026-11-21T20:00:00Z"),
        ({}, "2026-11-21T20:00:00.123456Z", "2026-11-21T20:00:00.123456Z"),
        ({}, "2026-11-21T20:00:09.123456Z", "2026-11-21T20:00:00Z"),
        ({}, "2026-11-21T20:00:00.123456", "2026-11-21T20:00:00Z"),
        ({}, "<script>", "2026-11-21T20:00:00Z"),
        ({}, 17, "2026-11-21T20:00:00Z"),
        ({"createdAt": "2026-11-21T20:00:01.000000Z"}, "2026-11-21T20:00:00.123456Z", "2026-11-21T20:00:01.000000Z"),
    ],
)
def test_a_creation_time_comes_from_the_best_source_that_is_trustworthy(
    status: dict[str, Any], annotated: Any, created: str
) -> None:
    metadata: dict[str, Any] = {"name": "a", "creationTimestamp": "2026-11-21T20:00:00Z"}
    if annotated is not None:
        metadata["annotations"] = {"mcp-exec.dev/created-at": annotated}
    assert read_created_at({"metadata": metadata, "status": status}) == created


def test_an_object_without_any_time_has_an_empty_one() -> None:
    assert read_created_at({"metadata": {"name": "a"}}) == ""
