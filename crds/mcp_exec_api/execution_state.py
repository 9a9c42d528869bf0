"""State of a CodeExecution read from its object, as the API server returns it."""

from datetime import datetime, timedelta
from typing import Any, Final

from mcp_exec_api.code_execution import Phase
from mcp_exec_api.constants import ANNOTATION_CREATED

_MAX_CLOCK_SKEW: Final = timedelta(seconds=5)


def read_phase(execution: dict[str, Any]) -> Phase | None:
    """Return the phase: Pending if there is none yet, None if a newer version wrote one that is unknown here."""
    phase = (execution.get("status") or {}).get("phase") or Phase.PENDING
    try:
        return Phase(phase)
    except ValueError:
        return None


def is_finished(execution: dict[str, Any]) -> bool:
    """Return whether the phase is final. An unknown phase is not: only a known one ends waits and frees quota."""
    phase = read_phase(execution)
    return phase is not None and phase.finished


def read_created_at(execution: dict[str, Any]) -> str:
    """Return the RFC 3339 time of creation, with microseconds if a trustworthy source has them.

    The status counts first, then the gateway's annotation if it differs from the API server's whole seconds by less
    than 5 s, because users can write annotations, and then those whole seconds.
    """
    if recorded := (execution.get("status") or {}).get("createdAt"):
        return str(recorded)
    metadata = execution["metadata"]
    coarse = str(metadata.get("creationTimestamp") or "")
    annotated: Any = (metadata.get("annotations") or {}).get(ANNOTATION_CREATED)
    try:
        skew = datetime.fromisoformat(annotated) - datetime.fromisoformat(coarse)
    except (TypeError, ValueError):
        return coarse
    return str(annotated) if abs(skew) < _MAX_CLOCK_SKEW else coarse
