"""docs/reference/rbac.md: the rights that the chart grants, read from the rendered chart."""

from pathlib import Path
from typing import Any, Final

import helm_python
import yaml

_NAMESPACES: Final = {"agents": "each served namespace", "mcp-exec-system": "the release's namespace"}

_PAGE: Final = """<!-- Generated from the rendered chart by `make generate`. Do not edit. -->
# Rights of each component

These are all rights that the chart grants, for a release `mcp-exec` in `mcp-exec-system` that serves the namespace
`agents`. Sandboxes and stdio servers have no token. No component may change nodes or roles, use `pods/exec`, or list or
change Secrets of served namespaces. Broker and operator may get the Secrets that a ToolServer names: the broker uses
their values, the operator detects a changed value and replaces the pod. In the release's namespace, the operator may
create Secrets. A ValidatingAdmissionPolicy (Kubernetes 1.30 or later) limits this to the names in the table, and to the
type Opaque. The operator may replace the CustomResourceDefinitions of mcp-exec, and create any: RBAC cannot restrict
`create` to a name.

The ClusterRole `mcp-exec-operator-removal` has the rights to end a served namespace: before an uninstallation, or after
its removal from `namespaces` ([upgrading.md](../platform/upgrading.md#removed-namespaces)).

`operator.watchNodes: false` removes the right to read nodes, `crds.upgrade: false` those on definitions,
`broker.enabled: false` all rights that tools need. For every row of this table, and for what must be refused, the
end-to-end tests ask the API server with `kubectl auth can-i`.

| Account | Where | API group | Resource | Only named | Verbs |
|---|---|---|---|---|---|
{rows}

An account that can create pods in a namespace can use every Secret and ServiceAccount of the namespace. The operator
can do so in the served namespaces. Keep only executions, pools, ToolServers and their Secrets there.

## Roles to bind

The chart creates these ClusterRoles and binds them to no account; [teams.md](../platform/teams.md) shows how to bind
them. With `aggregateRoles: true`, those for viewers, callers and managers are part of Kubernetes' `view`, `edit` and
`admin`. On Kubernetes before 1.30, who may patch executions can also write decisions on approvals
([policy.md](../platform/policy.md#approvals)). `codeexecutions/approval`, `skills/approval` and
`executionrollouts/approval` are no resources of the API server. The gateway asks the API server who may update them.
From these accounts it accepts approvals of calls and of skills, and promotions, pauses and aborts of rollouts.

| Role | API group | Resource | Only named | Verbs |
|---|---|---|---|---|
{unbound}
"""


def render_chart(chart: Path, *, values: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Render the chart, by default with its default values; return all objects."""
    with helm_python.Chart.load(str(chart)) as loaded:
        files = loaded.render(values or {}, name="mcp-exec", namespace="mcp-exec-system")
    texts = [text for name, text in sorted(files.items()) if name.endswith(".yaml")]
    return [item for text in texts for item in yaml.safe_load_all(text) if item]


def format_bound_rows(objects: list[dict[str, Any]]) -> list[str]:
    """Return one row per resource of each rule of each bound role."""
    roles = {
        (item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"]): item["rules"]
        for item in objects
        if item["kind"] in ("Role", "ClusterRole")
    }
    table = []
    for binding in (item for item in objects if item["kind"] in ("RoleBinding", "ClusterRoleBinding")):
        namespace = binding["metadata"].get("namespace")
        kind = binding["roleRef"]["kind"]
        rules = roles[kind, namespace if kind == "Role" else None, binding["roleRef"]["name"]]
        for subject in binding["subjects"]:
            for rule in rules:
                where = _NAMESPACES.get(namespace, "the cluster")
                table += [f"| `{subject['name']}` | {where} {cells}" for cells in _format_cells(rule)]
    return sorted(table)


def format_unbound_rows(objects: list[dict[str, Any]]) -> list[str]:
    """Return one row per resource of each rule of each ClusterRole without a binding."""
    bound = {item["roleRef"]["name"] for item in objects if item["kind"] in ("RoleBinding", "ClusterRoleBinding")}
    roles = [item for item in objects if item["kind"] == "ClusterRole" and item["metadata"]["name"] not in bound]
    return sorted(
        f"| `{role['metadata']['name']}` {cells}"
        for role in roles
        for rule in role["rules"]
        for cells in _format_cells(rule)
    )


def _format_cells(rule: dict[str, Any]) -> list[str]:
    names = ", ".join(f"`{name}`" for name in rule.get("resourceNames", []))
    verbs = ", ".join(rule["verbs"])
    return [
        f"| {f'`{group}`' if group else 'core'} | `{resource}` | {names} | {verbs} |"
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    ]


def build_page(chart: Path) -> str:
    """Return the text of the page."""
    objects = render_chart(chart)
    return _PAGE.format(rows="\n".join(format_bound_rows(objects)), unbound="\n".join(format_unbound_rows(objects)))
