"""How long finished executions are kept."""

import asyncio
from typing import Any, cast

from tests.support.constants import DEADLINE

from mcp_exec_api.meta import now
from mcp_exec_operator.cluster.kube.api import OperatorApi
from mcp_exec_operator.core.stored import StoredBudget
from mcp_exec_operator.core.ttl import TTLController

FOREVER = 10**9


class Deletions:
    """An API that records which execution was deleted first."""

    def __init__(self) -> None:
        self.first: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def delete(self, _kind: str, _namespace: str, name: str, *, uid: str, what: str) -> None:
        """Record a deletion."""
        assert uid
        assert what == "execution-delete"
        if not self.first.done():
            self.first.set_result(name)


def finished(name: str, *, at: str) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "agents", "name": name, "uid": name, "creationTimestamp": at},
        "spec": {"ttlSecondsAfterFinished": FOREVER},
        "status": {"finishedAt": at},
    }


async def test_no_execution_is_kept_longer_than_the_operator_allows_whatever_its_spec_says() -> None:
    deletions = Deletions()
    controller = TTLController(api=cast(OperatorApi, deletions))
    controller.observe(finished("later", at="2999-01-01T00:00:00.000000Z"))
    controller.observe(finished("old", at="2026-01-01T00:00:00.000000Z"))
    running = asyncio.create_task(controller.run())
    async with asyncio.timeout(DEADLINE):
        assert await deletions.first == "old"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert "later" in controller
    assert "old" not in controller


async def test_a_list_that_is_older_than_the_end_of_an_execution_does_not_forget_it() -> None:
    controller = TTLController(api=cast(OperatorApi, Deletions()))
    listed_at = now()
    controller.observe(finished("since", at="2999-01-01T00:00:00.000000Z"))
    controller.discard_missing("agents", set(), listed_at=listed_at)
    assert "since" in controller
    controller.discard_missing("agents", {"since"}, listed_at=now())
    assert "since" in controller
    controller.discard_missing("agents", set(), listed_at=now())
    assert "since" not in controller


async def test_an_execution_that_only_waits_for_a_finalizer_is_not_deleted_again_and_again() -> None:
    deletions, budget = Deletions(), StoredBudget(max_stored=1, max_stored_bytes=1)
    controller = TTLController(api=cast(OperatorApi, deletions), budget=budget)
    held = finished("held", at="2026-01-01T00:00:00.000000Z")
    controller.observe(held)
    assert budget.is_over
    held["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    controller.observe(held)
    assert "held" not in controller
    assert budget.choose(0.0) == {}
    assert not budget.is_over
    controller.observe(finished("old", at="2026-01-02T00:00:00.000000Z"))
    running = asyncio.create_task(controller.run())
    async with asyncio.timeout(DEADLINE):
        assert await deletions.first == "old"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
