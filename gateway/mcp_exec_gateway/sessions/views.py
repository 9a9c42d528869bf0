"""Sessions in responses."""

from typing import Any

from mcp_exec_api.execution_state import read_created_at
from mcp_exec_api.owner import Owner
from mcp_exec_api.sandbox_session import SandboxSessionSpec, SessionPhase
from mcp_exec_common.kube.objects import Object

_FROM_STATUS = (
    "reason",
    "executions",
    "queued",
    "memoryBytes",
    "podName",
    "nodeName",
    "startedAt",
    "lastUsedAt",
    "expiresAt",
    "endedAt",
    "conditions",
)


def build_session_view(session: Object, owner: Owner) -> dict[str, Any]:
    """Return a session as a response shows it, with the spec's defaults."""
    metadata, spec, status = session["metadata"], session.get("spec") or {}, session.get("status") or {}
    defaults = {"idleTimeoutSeconds": None, "maxAgeSeconds": None, "maxQueued": None}
    for name in ("idle_timeout_seconds", "max_age_seconds", "max_queued"):
        field = SandboxSessionSpec.model_fields[name]
        defaults[str(field.alias)] = field.default
    optional = {
        "caller": owner.caller,
        "user": owner.user,
        "description": spec.get("description"),
        **{name: status.get(name) for name in _FROM_STATUS},
    }
    return {
        "name": spec.get("name") or metadata["name"],
        "namespace": owner.namespace,
        "pool": (spec.get("poolRef") or {}).get("name", "default"),
        "phase": status.get("phase") or SessionPhase.PENDING.value,
        "reason": "",
        "executions": 0,
        "queued": 0,
        **{name: spec.get(name, default) for name, default in defaults.items()},
        "resets": spec.get("resets") or 0,
        "createdAt": read_created_at(session),
        **{name: value for name, value in optional.items() if value not in (None, "")},
    }
