"""Types of rules, and their file as Prometheus reads it."""

from dataclasses import dataclass
from typing import Any, Final, Literal

import yaml

RUNBOOKS: Final = "RUNBOOKS"
"""Stands for the address of docs/platform/runbooks.md, which the chart's values set."""
_HEADER: Final = "# Generated from hack/monitoring by `make generate`. Do not edit.\n"
_INTERVAL: Final = "30s"


@dataclass(frozen=True, kw_only=True)
class Recording:
    """A query whose result is stored under a name of its own."""

    name: str
    expr: str


@dataclass(frozen=True, kw_only=True)
class Alert:
    """A condition that needs a person. docs/platform/runbooks.md has a section by its name."""

    name: str
    expr: str
    minutes: int
    """For how long the condition must hold."""
    severity: Literal["critical", "warning"]
    summary: str
    """One sentence; `{{ $labels.NAME }}` and `{{ $value }}` are replaced."""


def build_rules(recordings: tuple[Recording, ...], alerts: tuple[Alert, ...]) -> str:
    """Return the file of rules."""
    groups: list[dict[str, Any]] = [
        {
            "name": "mcp-exec.recording",
            "interval": _INTERVAL,
            "rules": [{"record": each.name, "expr": each.expr} for each in recordings],
        },
        {
            "name": "mcp-exec.alerts",
            "interval": _INTERVAL,
            "rules": [
                {
                    "alert": each.name,
                    "expr": each.expr,
                    "for": f"{each.minutes}m",
                    "labels": {"severity": each.severity},
                    "annotations": {"summary": each.summary, "runbook_url": f"{RUNBOOKS}#{each.name.lower()}"},
                }
                for each in alerts
            ],
        },
    ]
    return _HEADER + yaml.safe_dump({"groups": groups}, sort_keys=False, width=200)
