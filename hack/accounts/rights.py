"""What the roles that tenants get may do in a served namespace: Kubernetes' own ones and those of the chart.

Kubernetes' roles are kept in kubernetes.json, so that pages are built without an API server. A test compares the file
with a real one. RECORD=yes pytest tests/component/accounts writes the file from the API server of KUBERNETES_BINARIES.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from hack.chart.rbac import render_chart

Object = dict[str, Any]
Kinds = dict[str, str]
"""Verbs by kind, each as kubectl spells it: `pods/exec`, `deployments.apps/scale`."""

FILE: Final = Path(__file__).with_name("kubernetes.json")
CHART: Final = Path(__file__).parents[2] / "charts" / "mcp-exec"
KUBERNETES: Final = ("view", "edit", "admin")
TENANTS: Final = ("mcp-exec-viewer", "mcp-exec-caller", "mcp-exec-manager", "mcp-exec-approver")
INCLUDED: Final = {
    "view": KUBERNETES,
    "edit": KUBERNETES[1:],
    "admin": KUBERNETES[2:],
    "mcp-exec-viewer": TENANTS[:3],
    "mcp-exec-caller": TENANTS[1:3],
    "mcp-exec-manager": TENANTS[2:3],
    "mcp-exec-approver": TENANTS[3:],
}
"""By role, the roles that have all of its rights."""
_UNLISTED: Final = {"impersonate"}
"""Verbs that no list of an API server has."""


class Right(NamedTuple):
    """One verb on one kind, which a role grants."""

    role: str
    verb: str
    kind: str


def read_file() -> Object:
    """Return the version of Kubernetes, the rights of its roles, and the verbs that it serves of their kinds."""
    content: Object = json.loads(FILE.read_text())
    return content


def build_file(*, version: str, roles: Iterable[Object], lists: Iterable[Object]) -> str:
    """Return the text of the file for these ClusterRoles and APIResourceLists."""
    granted = {role["metadata"]["name"]: _read_kinds([role]) for role in roles}
    kinds = {kind for found in granted.values() for kind in found}
    served = {
        name_kind(listed["groupVersion"].rpartition("/")[0], each["name"]): " ".join(sorted(each["verbs"]))
        for listed in lists
        for each in listed["resources"]
    }
    content = {
        "version": version,
        "roles": {name: granted[name] for name in KUBERNETES},
        "served": {kind: served[kind] for kind in sorted(kinds & served.keys())},
    }
    return json.dumps(content, indent=1) + "\n"


def list_rights() -> tuple[set[Right], set[Right]]:
    """Return the rights of all roles: those with an effect, and those on what the API server does not serve."""
    file = read_file()
    kubernetes: dict[str, Kinds] = file["roles"]
    served: Kinds = file["served"]
    chart = {
        item["metadata"]["name"]: _read_kinds([item])
        for item in render_chart(CHART)
        if item["kind"] == "ClusterRole" and item["metadata"]["name"] in TENANTS
    }
    assert chart.keys() == set(TENANTS), f"the chart has other roles: {sorted(chart)}"
    rights = {
        Right(role, verb, kind)
        for role, kinds in {**kubernetes, **chart}.items()
        for kind, verbs in kinds.items()
        for verb in verbs.split()
    }
    effective = {
        each
        for each in rights
        if each.role in TENANTS or each.verb in _UNLISTED or each.verb in served.get(each.kind, "").split()
    }
    return effective, rights - effective


def name_kind(group: str, resource: str) -> str:
    """Return a resource as kubectl spells it."""
    name, slash, part = resource.partition("/")
    return f"{name}.{group}{slash}{part}" if group else resource


def _read_kinds(roles: Iterable[Object]) -> Kinds:
    found: dict[str, set[str]] = {}
    for rule in (rule for role in roles for rule in role["rules"]):
        assert not rule.keys() & {"resourceNames", "nonResourceURLs"}, f"a rule of another sort: {rule}"
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                found.setdefault(name_kind(group, resource), set()).update(rule["verbs"])
    return {kind: " ".join(sorted(verbs)) for kind, verbs in sorted(found.items())}
