import asyncio
from typing import Any

import pytest

from mcp_exec_api.execution_state import is_finished
from mcp_exec_gateway.executions.index import Executions, Gone, Released, is_bound, lean
from mcp_exec_gateway.http.problems import Problem

KEY = ("agents", "exec-a")


def execution(phase: str | None = None, name: str = "exec-a", caller: str = "team-a", **status: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "agents",
            "uid": "u",
            "resourceVersion": "1",
            "labels": {"mcp-exec.dev/caller": caller, "other": "x"},
            "annotations": {"a": "b"},
        },
        "spec": {"code": "x" * 1000, "context": {"a": 1}},
        **({"status": {"phase": phase, **status}} if phase else {}),
    }


@pytest.fixture
def executions() -> Executions:
    return Executions(max_waits=3)


def test_the_copy_keeps_neither_code_nor_output() -> None:
    kept = lean(execution("Succeeded", output={"stdout": "x"}))
    assert kept == {
        "metadata": {
            "name": "exec-a",
            "namespace": "agents",
            "uid": "u",
            "resourceVersion": "1",
            "labels": {"mcp-exec.dev/caller": "team-a"},
        },
        "status": {"phase": "Succeeded"},
    }
    assert lean(kept) == kept


async def test_a_wait_ends_by_the_first_state_that_fits(executions: Executions) -> None:
    with executions.until(KEY, is_bound) as binding, executions.until(KEY, is_finished) as ending:
        executions.on_change(execution(), False)
        assert not binding.done()
        executions.on_change(execution("Running", podName="p"), False)
        assert binding.done()
        assert not ending.done()
        executions.on_change(execution("Failed", name="exec-b"), False)
        assert not ending.done()
        executions.on_change(execution("Failed"), False)
        executions.on_change(execution("Succeeded"), False)
        assert ending.result()["status"]["phase"] == "Failed"
    assert executions.waiting == 0
    assert executions.waits_for(KEY) == 0


async def test_a_wait_for_what_is_deleted_fails(executions: Executions) -> None:
    with executions.until(KEY, is_finished) as ending:
        executions.on_change(execution("Running"), True)
        with pytest.raises(Gone):
            ending.result()


async def test_release_ends_waits_that_stand_and_that_come(executions: Executions) -> None:
    with executions.until(KEY, is_finished) as standing:
        executions.release()
        with executions.until(KEY, is_finished) as coming:
            for future in (standing, coming):
                with pytest.raises(Released):
                    await future
        executions.on_change(execution("Succeeded"), False)


async def test_waits_are_bounded(executions: Executions) -> None:
    with executions.until(KEY, is_bound), executions.until(KEY, is_bound), executions.until(KEY, is_bound):
        with pytest.raises(Problem, match="wait for executions"), executions.until(KEY, is_bound):
            raise AssertionError
        assert executions.waiting == 3
    with executions.until(KEY, is_bound) as future:
        assert not future.done()


def test_what_is_under_way_is_counted_by_caller(executions: Executions) -> None:
    def count(caller: str = "team-a", namespace: str = "agents") -> int:
        return executions.under_way(namespace, caller)

    executions.on_change(execution("Running", name="a"), False)
    executions.on_change(execution(name="b"), False)
    executions.on_change(execution("Succeeded", name="c"), False)
    executions.on_change(execution("Running", name="d", caller="team-b"), False)
    assert (count(), count("team-b"), count(namespace="others")) == (2, 1, 0)
    executions.on_change(execution("Running", name="a"), False)
    assert count() == 2
    executions.on_change(execution("Failed", name="a"), False)
    executions.on_change(execution(name="b"), True)
    assert count() == 0


def test_a_creation_counts_from_before_it_is_seen_and_not_twice() -> None:
    now = [0.0]
    executions = Executions(max_waits=1, clock=lambda: now[0])
    executions.expect(KEY, "team-a")
    assert executions.under_way("agents", "team-a") == 1
    executions.on_change(execution(), False)
    assert executions.under_way("agents", "team-a") == 1
    executions.on_change(execution("Succeeded"), False)
    assert executions.under_way("agents", "team-a") == 0
    executions.expect(("agents", "exec-never-seen"), "team-a")
    executions.expect(("agents", "exec-refused"), "team-a")
    executions.forget(("agents", "exec-refused"))
    assert executions.under_way("agents", "team-a") == 1
    now[0] = 31
    assert executions.under_way("agents", "team-a") == 0


async def test_a_phase_of_a_newer_version_ends_no_wait_and_still_counts(executions: Executions) -> None:
    with executions.until(KEY, is_finished) as ending:
        executions.on_change(execution("Suspended"), False)
        assert not ending.done()
    assert executions.under_way("agents", "team-a") == 1
    assert lean(execution("Suspended"))["status"] == {"phase": "Suspended"}


async def test_a_wait_that_is_left_is_forgotten(executions: Executions) -> None:
    with pytest.raises(asyncio.TimeoutError), executions.until(KEY, is_finished):
        raise TimeoutError
    assert executions.waits_for(KEY) == 0
    executions.on_change(execution("Succeeded"), False)
