"""What the end-to-end tests expect of each kind of cluster."""

from typing import Any

import pytest
from tests.e2e.providers import provider

PLAIN: dict[str, Any] = {"metadata": {"name": "a"}}
LABELLED: dict[str, Any] = {"metadata": {"name": "b", "labels": {"mcp-exec.dev/runtime": "gvisor"}}}


@pytest.mark.parametrize(
    ("kind", "nodes", "promised"),
    [
        ("devcluster", [PLAIN], True),
        ("kind", [PLAIN], False),
        ("kind", [PLAIN, LABELLED], True),
        ("existing", [PLAIN, LABELLED], False),
        (None, [PLAIN, LABELLED], False),
    ],
)
def test_gvisor_must_exist_on_a_devcluster_and_where_hack_kind_has_installed_it(
    monkeypatch: pytest.MonkeyPatch, kind: str | None, nodes: list[dict[str, Any]], promised: bool
) -> None:
    monkeypatch.delenv("MCP_EXEC_CLUSTER", raising=False)
    if kind is not None:
        monkeypatch.setenv("MCP_EXEC_CLUSTER", kind)
    assert provider().promises_gvisor(nodes) is promised


def test_only_nodes_of_kind_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {}
    for kind in ("kind", "devcluster", "existing"):
        monkeypatch.setenv("MCP_EXEC_CLUSTER", kind)
        found[kind] = provider().stops_nodes
    assert found == {"kind": True, "devcluster": False, "existing": False}


def test_this_machine_is_the_node_of_a_devcluster_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {}
    for kind in ("kind", "devcluster", "existing"):
        monkeypatch.setenv("MCP_EXEC_CLUSTER", kind)
        found[kind] = provider().runs_here
    assert found == {"kind": False, "devcluster": True, "existing": False}


def test_an_unknown_kind_of_cluster_is_refused_with_those_that_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_EXEC_CLUSTER", "minikube")
    with pytest.raises(AssertionError, match="one of kind, devcluster, existing, not minikube"):
        provider()
