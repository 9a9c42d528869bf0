"""Values for the rules of clusters and of those who install: rights, security contexts, priorities, images on nodes."""

from typing import Annotated

from hack.chart.workload_values import Amount
from pydantic import Field

from mcp_exec_api.meta import Model


class ClusterObjectsValues(Model):
    """Objects that only an administrator of the cluster may create."""

    create: bool = True
    """Create them. If false, an administrator installs the chart `mcp-exec-cluster` as the release `RELEASE-cluster`
    before, with the same values."""


class RbacValues(Model):
    """Roles, ClusterRoles and their bindings."""

    create: bool = True
    """Create them. If false, create those of docs/reference/rbac.md yourself."""


class PriorityClassValues(Model):
    """A PriorityClass of operator, gateway and broker, so that sandboxes that fill the nodes do not displace them."""

    create: bool = False
    """Create it. Components with a `priorityClassName` do not use it."""
    value: Annotated[int, Field(ge=-2_147_483_648, le=1_000_000_000)] = 1_000_000
    """Its value. Sandboxes have 0 unless their pool has a PriorityClass, or the cluster another default."""


class PrePullValues(Model):
    """DaemonSets that keep the images of the chart's pools on the nodes, so that no new sandbox waits for it."""

    enabled: bool = False
    """Create one for each pool, in the release's namespace. Its pods have the pool's RuntimeClass, node selector,
    affinity and tolerations, run nothing and have no rights."""
    memory: Amount = "64Mi"
    """Memory of each pod in bytes, request and limit."""
