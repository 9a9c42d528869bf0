"""What a pool offers: the limits of its pods, as the operator creates them."""

from typing import Any

import pytest

from mcp_exec_gateway.core.pools import read_limits

GIB = 2**30
LARGE = {"limits": {"memory": "4Gi", "cpu": "2"}}


def template(memory: str) -> dict[str, Any]:
    return {
        "spec": {"containers": [{"name": "other"}, {"name": "sandbox", "resources": {"limits": {"memory": memory}}}]}
    }


@pytest.mark.parametrize(
    ("spec", "memory", "cpus"),
    [
        ({}, 3 * GIB // 4, 1.0),
        ({"resources": {"limits": {"memory": "2Gi"}}}, 2 * GIB, 1.0),
        ({"resources": LARGE}, 4 * GIB, 2.0),
        ({"resources": LARGE, "template": template("3Gi")}, 3 * GIB, 2.0),
        ({"resources": {"limits": {"memory": "much"}}}, None, None),
        ({"template": template("much")}, None, None),
        ({"template": {"spec": {"containers": "none"}}}, 3 * GIB // 4, 1.0),
        ({"template": {"spec": [1]}}, 3 * GIB // 4, 1.0),
    ],
)
def test_limits_are_those_of_the_pods(spec: dict[str, Any], memory: int | None, cpus: float | None) -> None:
    assert read_limits(spec) == (memory, cpus)
