"""What simulated nodes do with the pods that are bound to them."""

import asyncio
from typing import Any

import pytest
from nodes import SimulatedNodes
from supervisors import SimulatedSupervisors
from tests.support.pace import paced

from mcp_exec_common.kube.errors import ApiError


class Written:
    """An API server that takes everything, but what `refusals` says."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, Any]] = []
        self.refusals: list[int] = []
        self.wanted = 1
        self.done = asyncio.Event()

    async def patch(self, path: str, body: Any) -> None:
        self._note("PATCH", path, body)

    async def delete(self, path: str, **options: Any) -> None:
        self._note("DELETE", path, options)

    def _note(self, *call: Any) -> None:
        self.calls.append(call)
        if len(self.calls) == self.wanted:
            self.done.set()
        if self.refusals:
            raise ApiError(code=self.refusals.pop(0))


def pod(name: str = "a", *, node: str = "simulated-0000", **metadata: Any) -> dict[str, Any]:
    env = [{"name": "MCP_EXEC_TOKEN_SHA256", "value": "abc"}]
    return {
        "metadata": {"namespace": "agents", "name": name, "uid": f"uid-{name}", **metadata},
        "spec": {"nodeName": node, "containers": [{"name": "sandbox", "image": "some/image:1", "env": env}]},
        "status": {"phase": "Pending"},
    }


async def done_with(*events: tuple[dict[str, Any], bool], calls: int, refusals: tuple[int, ...] = ()) -> Any:
    """The calls and the supervisors after these events."""
    kube, supervisors = Written(), SimulatedSupervisors()
    kube.wanted, kube.refusals = calls, list(refusals)
    nodes = SimulatedNodes(
        kube=kube,  # type: ignore[arg-type]
        supervisors=supervisors,
        count=1,
        names=frozenset({"simulated-0000"}),
    )
    for event in events:
        nodes.on_pod(*event)
    working = asyncio.create_task(nodes.work())
    async with asyncio.timeout(paced(10)):
        await kube.done.wait()
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    return kube.calls, supervisors


async def test_a_pod_that_is_bound_runs_at_an_address_where_its_supervisor_answers() -> None:
    calls, supervisors = await done_with((pod(), False), (pod(), False), calls=1)
    [(verb, path, body)] = calls
    assert (verb, path) == ("PATCH", "/api/v1/namespaces/agents/pods/a/status")
    assert body["status"]["phase"] == "Running"
    assert supervisors.find(body["status"]["podIP"]).admits("Bearer x") is False


async def test_each_pod_has_its_own_address_and_those_of_other_nodes_have_none() -> None:
    calls, supervisors = await done_with(
        (pod("a"), False), (pod("b"), False), (pod("c", node="node1"), False), calls=2
    )  # fmt: skip
    assert len({body["status"]["podIP"] for _, _, body in calls}) == len(supervisors) == 2


async def test_a_pod_that_is_deleted_ends_at_once_and_is_gone() -> None:
    ending = pod(deletionTimestamp="2026-01-01T00:00:00Z")
    calls, supervisors = await done_with((pod(), False), (ending, False), (ending, False), calls=1)
    assert calls == [("DELETE", "/api/v1/namespaces/agents/pods/a", {"grace_seconds": 0, "uid": "uid-a"})]
    assert len(supervisors) == 0


@pytest.mark.parametrize("code", [404, 409])
async def test_a_pod_that_is_gone_meanwhile_is_let_go(code: int) -> None:
    calls, _ = await done_with((pod("a"), False), (pod("b"), False), calls=2, refusals=(code,))
    assert len(calls) == 2
