"""Two releases in one cluster."""

import json

import pytest
from tests.component.chart.conftest import Object, Render, Rendered

EVERYTHING: Object = {
    "aggregateRoles": True,
    "admissionPolicy": {"enabled": True},
    "broker": {"records": {"enabled": True}, "files": {"enabled": True}},
}
"""Values that render all kinds of cluster-scoped objects."""


def list_cluster_scoped(rendered: Rendered) -> set[tuple[str, str]]:
    return {
        (each["kind"], each["metadata"]["name"]) for each in rendered.objects if "namespace" not in each["metadata"]
    }


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("mcp-exec", "mcp-exec-system"), ("mcp-exec", "other")),
        (("mcp-exec", "one"), ("mcp-exec", "two")),
        (("b", "a"), ("mcp-exec", "a-b")),
        (("b", "a-mcp-exec"), ("mcp-exec", "b-mcp-exec-system")),
        (("mcp-exec-a", "mcp-exec-system"), ("mcp-exec", "a")),
    ],
)
def test_two_releases_share_no_cluster_scoped_object(
    render: Render, first: tuple[str, str], second: tuple[str, str]
) -> None:
    found = []
    for index, (release, namespace) in enumerate((first, second)):
        values = {**EVERYTHING, "namespaces": [f"agents-{index}"]}
        found.append(list_cluster_scoped(render(values, release=release, namespace=namespace)))
    assert {kind for kind, _ in found[0]} == {
        "ClusterRole", "ClusterRoleBinding", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "Namespace",
        "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
    }  # fmt: skip
    assert len(found[0]) == len(found[1])
    assert not found[0] & found[1]


@pytest.mark.parametrize("namespace", ["mcp-exec-system", "other"])
def test_bindings_name_what_the_release_renders(render: Render, namespace: str) -> None:
    rendered = render(EVERYTHING, namespace=namespace)
    referred = [
        each["roleRef"]["name"]
        for each in rendered.all("RoleBinding") + rendered.all("ClusterRoleBinding")
        if each["roleRef"]["kind"] == "ClusterRole"
    ]
    assert len(referred) == 4
    assert set(referred) <= set(rendered.names("ClusterRole"))
    policies = [each["spec"]["policyName"] for each in rendered.all("ValidatingAdmissionPolicyBinding")]
    assert sorted(set(policies)) == rendered.names("ValidatingAdmissionPolicy")


def test_the_names_of_the_documented_installation_are_short(render: Render) -> None:
    names = render(EVERYTHING).names("ClusterRole")
    assert {f"mcp-exec-{role}" for role in ("viewer", "caller", "manager", "approver")} <= set(names)


def test_the_walls_of_a_release_admit_only_its_own_served_namespaces(render: Render) -> None:
    walls = [
        json.dumps([each["spec"] for each in render({"namespaces": [own]}, namespace=system).all("NetworkPolicy")])
        for system, own in (("one", "agents-1"), ("two", "agents-2"))
    ]
    assert '"agents-1"' in walls[0]
    assert '"agents-2"' not in walls[0]
    assert '"agents-1"' not in walls[1]


def test_a_new_team_restarts_nothing_wherever_it_stands_in_the_list(render: Render) -> None:
    before, after = (render({"namespaces": names}).all("Deployment") for names in (["agents"], ["batch", "agents"]))
    assert before == after
