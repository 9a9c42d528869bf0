"""Resources that an execution used, within what its pod can have used: the numbers come from inside the sandbox."""

from typing import Any, Final

from mcp_exec_api.code_execution import Usage
from mcp_exec_api.constants import SANDBOX_CONTAINER
from mcp_exec_api.meta import parse_quantity
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.supervisor.protocol import EndEvent

_MAX_MEMORY_BYTES: Final = 2**40
"""Memory of a pod of which no limit is known."""
_MAX_CPUS: Final = 64.0
"""Cores of a pod of which no limit is known."""
_CPU_SLACK_SECONDS: Final = 1.0
"""Time in addition to a sandbox's life, because CPU limits hold on average and clocks have steps."""


def build_usage(end: EndEvent | None, *, pod: Object | None, sandbox_seconds: float, code_bytes: int) -> Usage:
    """Return what an execution used. `end` is the last event of its run, `pod` the newest object of its pod."""
    memory_limit, cpus = read_pod_limits(pod)
    cpu = None if end is None else end.cpu_seconds
    memory = None if end is None else end.peak_memory_bytes
    return Usage(
        cpu_seconds=None if cpu is None else round(min(cpu, (sandbox_seconds + _CPU_SLACK_SECONDS) * cpus), 6),
        peak_memory_bytes=None if memory is None else min(memory, memory_limit),
        sandbox_seconds=round(max(sandbox_seconds, 0.0), 3),
        code_bytes=code_bytes,
    )


def read_pod_limits(pod: Object | None) -> tuple[int, float]:
    """Return memory in bytes and CPU in cores that the pod's container may use."""
    containers = ((pod or {}).get("spec") or {}).get("containers") or []
    limits = next(
        (
            (each.get("resources") or {}).get("limits") or {}
            for each in containers
            if each.get("name") == SANDBOX_CONTAINER
        ),
        {},
    )
    return int(_read(limits, "memory", _MAX_MEMORY_BYTES)), _read(limits, "cpu", _MAX_CPUS)


def _read(limits: dict[str, Any], name: str, default: float) -> float:
    try:
        return float(parse_quantity(str(limits[name])))
    except (KeyError, ValueError):
        return default
