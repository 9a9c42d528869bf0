"""docs/reference/rbac.md: who may do what, read from the rendered chart."""

from pathlib import Path
from typing import Any, Final

import helm_python
import yaml

_NAMESPACES: Final = {"agents": "each served namespace", "mcp-exec-system": "the release's namespace"}

_PAGE: Final = """<!-- Generated from the rendered chart by `make generate`. Do not edit. -->
# Who may do what

Every right that the chart gives, for a release `mcp-exec` in `mcp-exec-system` that serves the namespace `agents`.
There are no others: sandboxes and stdio servers have no token at all, and nobody has a right to change nodes, on
`pods/exec`, to list or change Secrets of served namespaces, or to change roles. Broker and operator get those Secrets
that a ToolServer names: the broker for their values, the operator to see when another value needs another pod.
`operator.watchNodes: false` takes the right to read nodes away, `broker.enabled: false` all that is for tools. The
end-to-end tests ask the API server for every row of this table with `kubectl auth can-i`, and for what must be refused.

| Who | Where | API group | Resource | Only named | Verbs |
|---|---|---|---|---|---|
{rows}

Who can create pods in a namespace can use every Secret and ServiceAccount in it. The operator can, in the served
namespaces: keep nothing there but executions, pools, ToolServers and their Secrets.

## Roles to give away

The chart binds these ClusterRoles to nobody; [policy.md](../platform/policy.md#consent) says how to. `codeexecutions/approval` is
no resource of its own: nothing can be done with it but at the gateway, which asks the API server who may.

| Role | API group | Resource | Only named | Verbs |
|---|---|---|---|---|
{unbound}
"""


def rendered(chart: Path) -> list[dict[str, Any]]:
    """All objects of the chart with its default values."""
    with helm_python.Chart.load(str(chart)) as loaded:
        files = loaded.render({}, name="mcp-exec", namespace="mcp-exec-system")
    texts = [text for name, text in sorted(files.items()) if name.endswith(".yaml")]
    return [item for text in texts for item in yaml.safe_load_all(text) if item]


def rows(objects: list[dict[str, Any]]) -> list[str]:
    """One row for each resource of each rule of each role that is bound."""
    roles = {
        (item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"]): item["rules"]
        for item in objects
        if item["kind"] in ("Role", "ClusterRole")
    }
    found = []
    for binding in (item for item in objects if item["kind"] in ("RoleBinding", "ClusterRoleBinding")):
        namespace = binding["metadata"].get("namespace")
        rules = roles[binding["roleRef"]["kind"], namespace, binding["roleRef"]["name"]]
        for subject in binding["subjects"]:
            for rule in rules:
                where = _NAMESPACES.get(namespace, "the cluster")
                found += [f"| `{subject['name']}` | {where} {cells}" for cells in _cells(rule)]
    return sorted(found)


def unbound(objects: list[dict[str, Any]]) -> list[str]:
    """One row for each resource of each rule of each ClusterRole that no binding names."""
    bound = {item["roleRef"]["name"] for item in objects if item["kind"] in ("RoleBinding", "ClusterRoleBinding")}
    roles = [item for item in objects if item["kind"] == "ClusterRole" and item["metadata"]["name"] not in bound]
    return sorted(
        f"| `{role['metadata']['name']}` {cells}" for role in roles for rule in role["rules"] for cells in _cells(rule)
    )


def _cells(rule: dict[str, Any]) -> list[str]:
    names = ", ".join(f"`{name}`" for name in rule.get("resourceNames", []))
    verbs = ", ".join(rule["verbs"])
    return [
        f"| {f'`{group}`' if group else 'core'} | `{resource}` | {names} | {verbs} |"
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    ]


def page(chart: Path) -> str:
    """The whole page."""
    objects = rendered(chart)
    return _PAGE.format(rows="\n".join(rows(objects)), unbound="\n".join(unbound(objects)))
