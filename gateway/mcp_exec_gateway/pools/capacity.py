"""What a pool offers to an execution, from the pool's spec and status."""

from typing import Final

from pydantic import ValidationError

from mcp_exec_api.constants import DEFAULT_MAX_QUEUED, MAX_TIMEOUT_SECONDS, SANDBOX_CONTAINER
from mcp_exec_api.meta import parse_quantity
from mcp_exec_api.sandbox_pool import Resources, SandboxPoolSpec
from mcp_exec_api.wire.stats import PoolCapacity
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.supervisor.protocol import SandboxLibraries

_MAX_CONTAINERS: Final = 16
_MAX_PODS: Final[int] = SandboxPoolSpec.model_fields["max_pods"].default


def read_limits(spec: Object) -> tuple[int | None, float | None]:
    """Return memory in bytes and CPU in cores that each pod of a pool has, or None for what the spec has not validly.

    The template's container has precedence, as in the operator.
    """
    try:
        own = Resources.model_validate(spec.get("resources") or {}).limits.to_api()
        limits = {**own, **_read_template_limits(spec)}
        return int(parse_quantity(str(limits["memory"]))), float(parse_quantity(str(limits["cpu"])))
    except (ValidationError, ValueError, OverflowError):
        return None, None


def read_capacity(pool: Object) -> PoolCapacity:
    """Return what a pool offers."""
    spec, status = pool.get("spec") or {}, pool.get("status") or {}
    memory, cpus = read_limits(spec)
    image = read_libraries(status)
    counts = {name: int(status.get(name) or 0) for name in ("warm", "starting", "busy", "queued")}
    return PoolCapacity(
        name=pool["metadata"]["name"],
        memory_bytes=memory,
        cpus=cpus,
        runtime=spec.get("runtimeClassName") or None,
        max_timeout_seconds=int(spec.get("maxTimeoutSeconds", MAX_TIMEOUT_SECONDS)),
        max_pods=int(spec.get("maxPods", _MAX_PODS)),
        max_queued=int(spec.get("maxQueued", DEFAULT_MAX_QUEUED)),
        python=image.python if image is not None else None,
        libraries=image.libraries if image is not None else None,
        **counts,
    )


def read_libraries(status: Object) -> SandboxLibraries | None:
    """Return Python and libraries of a pool's status, or None if no pod was asked yet."""
    fields = {"python": status.get("python"), "libraries": status.get("libraries") or []}
    try:
        return SandboxLibraries.model_validate(fields)
    except ValidationError:
        return None


def _read_template_limits(spec: Object) -> Object:
    """Return the limits that the template sets for the sandbox's container."""
    template = (spec.get("template") or {}).get("spec")
    containers = template.get("containers") if isinstance(template, dict) else None
    for container in (containers if isinstance(containers, list) else [])[:_MAX_CONTAINERS]:
        if isinstance(container, dict) and container.get("name") == SANDBOX_CONTAINER:
            resources = container.get("resources")
            limits = resources.get("limits") if isinstance(resources, dict) else None
            return limits if isinstance(limits, dict) else {}
    return {}
