"""Which NetworkPolicies of others open sandboxes."""

from typing import Any

import pytest

from mcp_exec_operator.core.pods.manifest import pool_labels
from mcp_exec_operator.core.pods.network_policy import NamespacePolicies, may_select, read_opening

LABELS = pool_labels("default") | {"team": "data"}


def policy(name: str = "p", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"podSelector": {}, **spec}}


@pytest.mark.parametrize(
    ("spec", "directions"),
    [
        ({"ingress": [{}]}, ("ingress",)),
        ({"egress": [{"to": []}]}, ("egress",)),
        ({"ingress": [{}], "egress": [{}], "policyTypes": ["Ingress", "Egress"]}, ("ingress", "egress")),
        ({"egress": [{}], "policyTypes": ["Ingress"]}, None),
        ({"policyTypes": ["Ingress", "Egress"]}, None),
        ({"ingress": []}, None),
        ({}, None),
    ],
)
def test_a_policy_opens_the_directions_for_which_it_has_rules(
    spec: dict[str, Any], directions: tuple[str, ...] | None
) -> None:
    found = read_opening(policy(**spec))
    assert (found.directions if found is not None else None) == directions


@pytest.mark.parametrize(
    ("selector", "selects"),
    [
        ({}, True),
        ({"matchLabels": {"app.kubernetes.io/name": "mcp-exec-sandbox"}}, True),
        ({"matchLabels": {"team": "data", "mcp-exec.dev/state": "busy"}}, True),
        ({"matchLabels": {"app": "web"}}, False),
        ({"matchLabels": {"mcp-exec.dev/pool": "other"}}, False),
        ({"matchExpressions": [{"key": "team", "operator": "In", "values": ["data"]}]}, True),
        ({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["data"]}]}, False),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, False),
        ({"matchExpressions": [{"key": "mcp-exec.dev/execution", "operator": "In", "values": ["x"]}]}, True),
    ],
)
def test_a_selector_may_select_a_sandbox_whatever_its_changing_labels_are(
    selector: dict[str, Any], selects: bool
) -> None:
    assert may_select(selector, LABELS) is selects


def test_a_selector_that_is_too_large_to_keep_counts_as_selecting_everything() -> None:
    values = [f"v{number}" for number in range(1000)]
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": values}]}
    opening = read_opening({"metadata": {"name": "p"}, "spec": {"podSelector": selector, "ingress": [{}]}})
    assert opening is not None
    assert may_select(opening.selector, LABELS)


def test_the_policies_that_are_kept_are_bounded() -> None:
    policies = NamespacePolicies()
    for number in range(1000):
        policies.observe(policy(f"p{number:04}", ingress=[{}]), deleted=False)
    assert len(policies.find(LABELS)) == 256
    policies.observe(policy("p0000"), deleted=False)
    policies.observe(policy("p0001", ingress=[{}]), deleted=True)
    assert len(policies.find(LABELS)) == 254
