"""A rollout in a cluster: stages by time and by people, pools warmed before a stage, and arms at the gateway."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from tests.e2e.support import NAMESPACE, Cluster, MakePool, condition
from tests.e2e.toolservers import approver
from tests.support.until import eventually

KIND = "ExecutionRollout"
NAME = "staged"
SPEC = {
    "arms": [{"name": "direct", "mode": "direct", "weight": 0}, {"name": "code", "mode": "code", "pool": "staged"}],
    "control": "direct",
    "completeWith": "code",
    "stages": [
        {"name": "team", "users": ["ann"], "arm": "code", "durationSeconds": 3},
        {"name": "all", "percent": 100, "manual": True, "warmPods": 3},
    ],
    "guards": [{"name": "errors", "metric": "errorRate", "threshold": 0.5, "onUnknown": "Proceed"}],
}


@pytest.fixture
def rollout(installed: Cluster, make_pool: MakePool) -> Iterator[Cluster]:
    """The cluster, where the rollout begins."""
    make_pool("staged", warm=1)
    metadata = {"name": NAME, "namespace": NAMESPACE}
    installed.apply({"apiVersion": "mcp-exec.dev/v1beta1", "kind": KIND, "metadata": metadata, "spec": SPEC})
    yield installed
    installed.delete(KIND, NAME)


def status_of(cluster: Cluster) -> dict[str, Any]:
    return dict(cluster.get(KIND, NAME).get("status", {}))


def reached(cluster: Cluster, **fields: str) -> dict[str, Any]:
    def find() -> dict[str, Any] | None:
        status = status_of(cluster)
        return status if all(status.get(name) == value for name, value in fields.items()) else None

    try:
        return eventually(find, seconds=60, every=0.2, what=f"the rollout is {fields}") or {}
    except AssertionError as error:
        raise AssertionError(f"{error}: {status_of(cluster)}") from error


def start_times(cluster: Cluster) -> list[datetime]:
    """Return when each pod of the pool began to run, the earliest first."""
    pods = cluster.select("Pod", labels="mcp-exec.dev/pool=staged")
    states = [pod["status"]["containerStatuses"][0]["state"].get("running") for pod in pods]
    return sorted(datetime.fromisoformat(state["startedAt"]) for state in states if state)


def test_stages_begin_by_time_and_by_people_and_their_pools_are_warm_before(rollout: Cluster, url: str) -> None:
    status = reached(rollout, stage="all", phase="Progressing")
    assert condition(status, "PoolsWarm")["status"] == "True"
    started = start_times(rollout)
    assert len(started) == 3
    assert started[-1] <= datetime.fromisoformat(status["since"])
    titles, row = rollout.kubectl("get", "xro", NAME, "-n", NAMESPACE).splitlines()
    assert titles.split() == ["NAME", "PHASE", "STAGE", "ARMS", "EXPOSURE", "GUARD", "AGE"]
    assert row.split()[:5] == [NAME, "Progressing", "all", "direct,", "code"]
    described = rollout.kubectl("describe", "xro", NAME, "-n", NAMESPACE)
    assert "stage team began: 1 user, 0 %" in described
    assert "stage all began: 1 user, 100 %" in described
    with approver(rollout, url) as client:

        def arm() -> str:
            answer = client.post(f"/v1/rollouts/{NAME}/assignments", json={"unit": "conversation-1"})
            return str(answer.json()["arm"])

        eventually(lambda: arm() == "code", what="the gateway assigns the arm of the stage")
        assert client.post(f"/v1/rollouts/{NAME}/pause").status_code == 202
        reached(rollout, phase="Paused")
        assert arm() == "code"
        assert client.post(f"/v1/rollouts/{NAME}/resume").status_code == 202
        reached(rollout, phase="Progressing")
        assert client.post(f"/v1/rollouts/{NAME}/promote", json={"to": "Completed"}).status_code == 202
        assert reached(rollout, phase="Completed")["exposure"] == "all: code"
        rollout.kubectl(
            "patch", "xro", NAME, "-n", NAMESPACE, "--type", "merge", "-p", '{"spec": {"killSwitch": true}}'
        )
        reached(rollout, phase="Aborted")
        eventually(lambda: arm() == "direct", what="the gateway gives everybody the control arm")
    eventually(lambda: rollout.get("SandboxPool", "staged")["status"]["desired"] == 1, what="the pool is as before")


def test_a_bad_arm_rolls_back_by_itself(installed: Cluster, url: str) -> None:
    spec = {
        "arms": [{"name": "direct", "mode": "direct", "weight": 0}, {"name": "code", "mode": "code"}],
        "control": "direct",
        "stages": [{"name": "all", "percent": 100, "manual": True}],
        "guards": [{"name": "errors", "metric": "errorRate", "threshold": 0.5}],
    }
    metadata = {"name": NAME, "namespace": NAMESPACE}
    installed.apply({"apiVersion": "mcp-exec.dev/v1beta1", "kind": KIND, "metadata": metadata, "spec": spec})
    try:
        reached(installed, stage="all", phase="Progressing")
        with approver(installed, url) as client:
            path = f"/v1/rollouts/{NAME}"
            eventually(lambda: client.post(f"{path}/assignments", json={"unit": "u"}).json()["arm"] == "code")
            for number in range(25):
                outcome = {"id": f"task-{number}", "unit": f"unit-{number}", "success": False, "latencyMs": 100}
                assert client.post(f"{path}/outcomes", json=outcome).status_code == 204
            ended = reached(installed, phase="RolledBack")
            assert "errorRate of arm code is 1 in 25 samples" in ended["message"]
            eventually(lambda: client.post(f"{path}/assignments", json={"unit": "u"}).json()["arm"] == "direct")
            [arm] = client.get(f"{path}/report").json()["arms"]
            assert (arm["name"], arm["failures"], arm["errorRate"]["samples"]) == ("code", 25, 25)
    finally:
        installed.delete(KIND, NAME)
