"""Versions of Kubernetes that this release supports or accepts, and definitions that it cannot upgrade."""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from mcp_exec_api.constants import FORMER_VERSION, GROUP
from mcp_exec_common.kube.client import KubeClient
from mcp_exec_common.kube.errors import ApiError

_VERSION: Final = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})\b")


class KubernetesVersion(NamedTuple):
    """A minor version of Kubernetes."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


OLDEST_ACCEPTED: Final = KubernetesVersion(1, 20)
"""Helm refuses clusters that are older."""
OLDEST_SUPPORTED: Final = KubernetesVersion(1, 30)
NEWEST_SUPPORTED: Final = KubernetesVersion(1, 37)
MISSING: Final = {
    KubernetesVersion(1, 30): (
        "admission policies: RBAC alone protects callers' names, approvals, sandboxes, NetworkPolicies and Secrets"
    ),
    KubernetesVersion(1, 25): "rules of custom resources: the operator reports what the API server would refuse",
    KubernetesVersion(1, 23): "Pod Security admission: nothing enforces the level `restricted`",
}
"""What clusters lack that are older than a version, newest first."""


def describe_support(version: KubernetesVersion) -> str:
    """Return how a version differs from those that are supported; an empty text for one of these."""
    if version > NEWEST_SUPPORTED:
        return f"Kubernetes {version} is newer than {NEWEST_SUPPORTED}, the newest version that this release supports"
    if version >= OLDEST_SUPPORTED:
        return ""
    missing = "; ".join(what for since, what in MISSING.items() if version < since)
    return (
        f"Kubernetes {version} is older than {OLDEST_SUPPORTED}, the oldest version that is supported: this is best "
        f"effort, without {missing}"
    )


EARLIER_DEFINITIONS: Final = (
    f"the CustomResourceDefinitions are of an earlier release, whose stored version {FORMER_VERSION} the API server "
    "can't remove"
)


def describe_deletion(plurals: Iterable[str]) -> str:
    """Return what to do about earlier definitions."""
    names = " ".join(f"{plural}.{GROUP}" for plural in plurals)
    return f"delete these definitions, and with them all their objects in all namespaces: `kubectl delete crd {names}`"


async def find_earlier_definitions(kube: KubeClient) -> list[str]:
    """Return the plurals of the kinds whose definitions are of an earlier release. Raises ApiError."""
    found = await kube.find(f"/apis/{GROUP}/{FORMER_VERSION}") or {}
    names = (str(resource["name"]) for resource in found.get("resources", ()))
    return sorted(name for name in names if "/" not in name)


async def read_version(kube: KubeClient) -> KubernetesVersion | None:
    """Return the cluster's version, or None if the API server does not say it."""
    try:
        answer = await kube.get("/version")
    except ApiError:
        return None
    found = _VERSION.match(str(answer.get("gitVersion")))
    return KubernetesVersion(int(found[1]), int(found[2])) if found else None
