"""Nodes: which are lost, which are to be left, and by whom."""

from typing import Any

import pytest

from mcp_exec_operator.core.pods.nodes import NodeCache, tolerates


def node(*, ready: str | None = "True", cordoned: bool = False, taints: Any = ()) -> Any:
    conditions = [] if ready is None else [{"type": "Ready", "status": ready, "reason": "KubeletNotReady"}]
    spec = {"unschedulable": True} if cordoned else {}
    return {
        "metadata": {"name": "n1"},
        "spec": {**spec, "taints": list(taints)},
        "status": {"conditions": [*conditions, {"type": "MemoryPressure", "status": "Unknown"}]},
    }


def nodes(**fields: Any) -> NodeCache:
    made = NodeCache()
    made.observe(node(**fields), deleted=False)
    return made


def taint(key: str, effect: str = "NoExecute", **more: str) -> dict[str, str]:
    return {"key": key, "effect": effect, **more}


CORDON = taint("node.kubernetes.io/unschedulable", "NoSchedule")


@pytest.mark.parametrize(
    ("fields", "loss"),
    [
        ({}, ""),
        ({"ready": None}, ""),
        ({"cordoned": True}, ""),
        ({"ready": "False"}, "node n1 is not ready: KubeletNotReady"),
        ({"ready": "Unknown"}, "node n1 is not ready: KubeletNotReady"),
        ({"taints": [taint("node.kubernetes.io/unreachable")]}, "node n1 has the taint node.kubernetes.io/unreachable"),
        ({"taints": [taint("node.kubernetes.io/unreachable", "NoSchedule")]}, ""),
    ],
)
def test_a_node_that_does_not_say_that_it_is_ready_is_lost(fields: dict[str, Any], loss: str) -> None:
    assert nodes(**fields).loss_reason("n1") == loss
    assert nodes(**fields).is_trusted("n1") is not bool(loss)


def test_a_node_that_nobody_told_of_is_a_good_one_and_one_that_is_gone_is_lost() -> None:
    made = nodes()
    assert (made.loss_reason("n2"), made.loss_reason(None), made.reason_to_leave("n2", []), made.is_cordoned("n2")) == (
        "",
        "",
        "",
        False,
    )
    assert made.observe(node(), deleted=True) == "n1"
    assert made.loss_reason("n1") == "node n1 is gone"
    assert made.observe(node(), deleted=False) == "n1"
    assert made.loss_reason("n1") == ""


def test_only_what_concerns_its_pods_is_a_change() -> None:
    made = nodes(taints=[taint("a", timeAdded="2026-11-21T20:00:00Z")])
    heartbeat = node(taints=[taint("a", timeAdded="2026-11-21T20:00:05Z")])
    heartbeat["status"]["images"] = [{"names": ["x"]}]
    assert made.observe(heartbeat, deleted=False) is None
    assert made.observe(node(cordoned=True), deleted=False) == "n1"
    assert made.observe(node(cordoned=True), deleted=False) is None


@pytest.mark.parametrize(
    ("fields", "tolerations", "word"),
    [
        ({}, [], ""),
        ({"cordoned": True}, [], "cordoned"),
        ({"cordoned": True}, [{"key": CORDON["key"], "operator": "Exists"}], ""),
        ({"cordoned": True}, [{"operator": "Exists"}], ""),
        ({"taints": [taint("gpu-broken")]}, [], "gpu-broken"),
        ({"taints": [taint("a"), taint("b")]}, [{"key": "a", "operator": "Exists"}], "taint b"),
        ({"taints": [taint("gpu-broken", "NoSchedule")]}, [], ""),
    ],
)
def test_pods_leave_a_node_that_is_cordoned_or_tainted_unless_they_tolerate_it(
    fields: dict[str, Any], tolerations: list[dict[str, Any]], word: str
) -> None:
    why = nodes(**fields).reason_to_leave("n1", tolerations)
    assert (word in why) if word else not why


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "a", "operator": "Exists", "tolerationSeconds": 5}, True),
        ({"key": "a", "operator": "Equal", "value": "1", "effect": "NoExecute"}, True),
        ({"key": "a", "value": "1"}, True),
        ({"key": "a", "operator": "Equal", "value": "2"}, False),
        ({"key": "b", "operator": "Exists"}, False),
        ({"key": "a", "operator": "Exists", "effect": "NoSchedule"}, False),
    ],
)
def test_a_toleration_is_for_a_taint_as_the_scheduler_has_it(toleration: dict[str, Any], expected: bool) -> None:
    assert tolerates([toleration], taint("a", value="1")) is expected
