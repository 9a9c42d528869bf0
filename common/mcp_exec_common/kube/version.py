"""Versions of Kubernetes: those that this release supports, and older ones that it accepts. Declared only here."""

import re
from typing import Final, NamedTuple

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


async def read_version(kube: KubeClient) -> KubernetesVersion | None:
    """Return the cluster's version, or None if the API server does not say it."""
    try:
        answer = await kube.get("/version")
    except ApiError:
        return None
    found = _VERSION.match(str(answer.get("gitVersion")))
    return KubernetesVersion(int(found[1]), int(found[2])) if found else None
