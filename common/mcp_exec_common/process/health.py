"""Bodies and status codes of `/healthz` and `/readyz`, the same in all processes.

Liveness: 200 `{"status": "ok"}`, or 503 `{"status": "failed", "failed": [...]}` if the process must be restarted.
Readiness: 200 `{"status": "ready", "missing": []}`, or 503 with status `starting` or `stopping` and what is missing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class HealthReport:
    """Response to a probe."""

    status_code: int
    body: dict[str, Any] = field(default_factory=dict)


def report_liveness(failed: Sequence[str] = ()) -> HealthReport:
    """Report what has failed for good, such as background tasks that ended."""
    if failed:
        return HealthReport(status_code=503, body={"status": "failed", "failed": list(failed)})
    return HealthReport(status_code=200, body={"status": "ok"})


def report_readiness(missing: Sequence[str], *, stopping: bool = False, **details: str) -> HealthReport:
    """Report what is not loaded yet. `details` are added to the body, such as the role of a replica."""
    status = "stopping" if stopping else "starting" if missing else "ready"
    body = {"status": status, "missing": list(missing), **details}
    return HealthReport(status_code=200 if status == "ready" else 503, body=body)
