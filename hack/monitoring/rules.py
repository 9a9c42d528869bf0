"""Types of rules, and their file as Prometheus reads it."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

import yaml

RUNBOOKS: Final = "RUNBOOKS"
"""Stands for the address of docs/platform/runbooks.md, which the chart's values set."""
ANY_RELEASE: Final = 'release=~".*"'
"""Matcher of each selector of a rule. The chart replaces it by that of its release."""
_SELECTOR: Final = re.compile(r"\b(mcp_exec[a-z0-9_:]*|process_[a-z_]+)(\{?)")
_HEADER: Final = "# Generated from hack/monitoring by `make generate`. Do not edit.\n"
_INTERVAL: Final = "30s"


@dataclass(frozen=True, kw_only=True)
class Recording:
    """A query whose result is stored under a name of its own."""

    name: str
    expr: str


@dataclass(frozen=True, kw_only=True)
class Alert:
    """A condition that needs a person. docs/platform/runbooks.md has a section by its name.

    Its series have the label `release`, so that alerts distinguish the releases of a cluster.
    """

    name: str
    expr: str
    minutes: int
    """For how long the condition must hold."""
    severity: Literal["critical", "warning"]
    summary: str
    """One sentence; `{{ $labels.NAME }}` and `{{ $value }}` are replaced."""


def add_matchers(expr: str, matchers: Callable[[str], str]) -> str:
    """Return a query with further matchers in each selector: those that `matchers` returns for the metric's name."""

    def add(found: re.Match[str]) -> str:
        added = matchers(found[1])
        return f"{found[1]}{{{added}, " if found[2] else f"{found[1]}{{{added}}}"

    return _SELECTOR.sub(add, expr)


def _of_release(expr: str) -> str:
    return add_matchers(expr, lambda _: ANY_RELEASE)


def build_rules(recordings: tuple[Recording, ...], alerts: tuple[Alert, ...]) -> str:
    """Return the file of rules."""
    groups: list[dict[str, Any]] = [
        {
            "name": "mcp-exec.recording",
            "interval": _INTERVAL,
            "rules": [{"record": each.name, "expr": _of_release(each.expr)} for each in recordings],
        },
        {
            "name": "mcp-exec.alerts",
            "interval": _INTERVAL,
            "rules": [
                {
                    "alert": each.name,
                    "expr": _of_release(each.expr),
                    "for": f"{each.minutes}m",
                    "labels": {"severity": each.severity},
                    "annotations": {"summary": each.summary, "runbook_url": f"{RUNBOOKS}#{each.name.lower()}"},
                }
                for each in alerts
            ],
        },
    ]
    return _HEADER + yaml.safe_dump({"groups": groups}, sort_keys=False, width=200)
