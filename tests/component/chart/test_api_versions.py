"""The API versions that chart and processes use are those of every supported Kubernetes.

Kubernetes 1 never removes a stable version (https://kubernetes.io/docs/reference/using-api/deprecation-policy/, 4a). So
each must be stable, must exist in the oldest version that is supported, and must not be deprecated in the newest.
"""

import re
from pathlib import Path

import pytest
import yaml
from tests.component.chart.conftest import CHART, Object, Render

from mcp_exec_common.kube.version import NEWEST_SUPPORTED, OLDEST_SUPPORTED

ROOT = CHART.parents[1]
SINCE = {
    "admissionregistration.k8s.io/v1": 30,
    "apiextensions.k8s.io/v1": 16,
    "apps/v1": 9,
    "authentication.k8s.io/v1": 28,
    "authorization.k8s.io/v1": 6,
    "autoscaling/v2": 23,
    "batch/v1": 21,
    "coordination.k8s.io/v1": 14,
    "networking.k8s.io/v1": 19,
    "policy/v1": 21,
    "rbac.authorization.k8s.io/v1": 8,
    "scheduling.k8s.io/v1": 14,
    "v1": 0,
}
"""The minor version of Kubernetes that has all kinds of it that are used here.

From https://kubernetes.io/docs/reference/using-api/deprecation-guide/; for admission policies and SelfSubjectReviews,
from the pages of these kinds.
"""
FOREIGN = re.compile(r"(mcp-exec\.dev|monitoring\.coreos\.com|gateway\.networking\.k8s\.io|cert-manager\.io)/")
"""API groups of CustomResourceDefinitions."""
DEPRECATED = {"Endpoints": 33, "ComponentStatus": 19}
"""Stable kinds, by the minor version of Kubernetes that warns of them."""
FIELDS = {"gitRepo": "a volume, off since 1.33", "externalIPs": "of a Service, deprecated since 1.36"}
VALUES = [None, *sorted(CHART.glob("ci/*-values.yaml"))]


def misused(versions: set[str]) -> dict[str, object]:
    """Return the versions that an API server of a supported Kubernetes may lack, with the first that has each."""
    own = {version for version in versions if not FOREIGN.match(version)}
    return {each: SINCE.get(each) for each in own if SINCE.get(each, 1000) > OLDEST_SUPPORTED.minor}


def read(path: Path | None) -> Object:
    return yaml.safe_load(path.read_text()) if path else {}


def keys_of(value: object) -> set[str]:
    """Return the names of all fields."""
    if isinstance(value, dict):
        return set(value).union(*map(keys_of, value.values()))
    return set().union(*map(keys_of, value)) if isinstance(value, list) else set()


@pytest.mark.parametrize("version", [OLDEST_SUPPORTED, NEWEST_SUPPORTED], ids=str)
@pytest.mark.parametrize("path", VALUES, ids=lambda path: path.stem if path else "defaults")
def test_the_chart_renders_only_what_every_supported_kubernetes_has(
    helm3: Render, path: Path | None, version: tuple[int, int]
) -> None:
    rendered = helm3(read(path), "--kube-version", f"{version[0]}.{version[1]}.0")
    assert misused({item["apiVersion"] for item in rendered.objects}) == {}
    assert {item["kind"] for item in rendered.objects} & DEPRECATED.keys() == set()
    assert keys_of(rendered.objects) & FIELDS.keys() == set()


@pytest.mark.parametrize("path", VALUES, ids=lambda path: path.stem if path else "defaults")
def test_no_account_has_rights_to_a_deprecated_kind(helm3: Render, path: Path | None) -> None:
    roles = [item for item in helm3(read(path)).objects if item["kind"] in ("Role", "ClusterRole")]
    resources = {
        name.partition("/")[0] for role in roles for rule in role["rules"] for name in rule.get("resources", [])
    }
    assert resources
    assert resources & {"endpoints", "componentstatuses", "podsecuritypolicies"} == set()


def test_the_processes_name_only_versions_that_every_supported_kubernetes_has() -> None:
    sources = [
        path
        for folder in ("broker", "client", "common", "crds", "gateway", "operator")
        for path in (ROOT / folder).rglob("*.py")
    ]
    named = set()
    for path in sources:
        named |= set(re.findall(r'"((?:[a-z.]+\.k8s\.io|apps|batch|policy)/v\d+(?:alpha|beta)?\d*)"', path.read_text()))
    assert {"apps/v1", "networking.k8s.io/v1"} <= named
    assert misused(named) == {}


def test_a_version_that_is_not_stable_or_too_new_is_found() -> None:
    assert misused({"policy/v1beta1", "apps/v1", "mcp-exec.dev/v1beta1"}) == {"policy/v1beta1": None}
    assert [minor for minor in DEPRECATED.values() if minor > NEWEST_SUPPORTED.minor] == []
