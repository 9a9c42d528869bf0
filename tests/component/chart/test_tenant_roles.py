"""What the roles for tenants read of Kubernetes' own kinds: what the pages for users ask them to look at."""

import re
from pathlib import Path

import pytest
from tests.component.chart.conftest import Render

DOCS = Path(__file__).parents[3] / "docs"
LOOKED_AT = {
    "mcp-exec-viewer": {"events", "limitranges", "resourcequotas"},
    "mcp-exec-manager": {"events", "limitranges", "resourcequotas", "pods", "pods/log", "networkpolicies"},
}


@pytest.mark.parametrize("role", LOOKED_AT)
def test_a_tenant_reads_what_explains_why_no_pod_is_available(render: Render, role: str) -> None:
    rules = render().one("ClusterRole", role)["rules"]
    foreign = [rule for rule in rules if rule["apiGroups"] != ["mcp-exec.dev"]]
    readable = {resource for rule in foreign for resource in rule["resources"] if "get" in rule["verbs"]}
    assert LOOKED_AT[role] <= readable
    assert all(set(rule["verbs"]) <= {"get", "list", "watch"} for rule in foreign), "nothing of Kubernetes is written"
    assert not any("secrets" in rule["resources"] for rule in foreign)


def test_the_manager_reads_each_kind_that_troubleshooting_asks_to_look_at(render: Render) -> None:
    text = (DOCS / "kubectl" / "troubleshooting.md").read_text()
    asked = {kind for kinds in re.findall(r"kubectl (?:get|describe) ([a-z,]+)", text) for kind in kinds.split(",")}
    own = {"cex", "sbp", "ts", "sbs", "sandboxpool", "sandboxpools", "sandboxsession"}
    of_others = {"nodes", "services", "endpointslices", "deployments", "service"}
    """Of the release's namespace or of the cluster, which a platform team looks at."""
    rules = render().one("ClusterRole", "mcp-exec-manager")["rules"]
    assert asked - own - of_others <= {resource for rule in rules for resource in rule["resources"]}
