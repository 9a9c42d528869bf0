"""What a whole run of CI does on a machine of some speed, so that it ends within its limit.

A machine's factor is the time of a loop in Python against 1.0 seconds. What does not fit is left out in a stated order.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Final

from hack.ci.parts import PARTS

BUDGET_MINUTES: Final = 75.0
"""The limit of CI is 90 minutes; downloads and a slow disk need the rest."""
_LOOP: Final = 5_000_000
"""Additions of one measurement. 20 million take 1.0 seconds on a machine of factor 1."""

LONG_FILES: Final = (
    "chart", "command_line", "example_tasks", "failover", "live", "pages", "tool_credentials", "tools", "uninstall",
)  # fmt: skip
"""Files of tests/e2e that take longest, and are left out last."""
OLDEST: Final = ("chart", "crds", "isolation", "pools", "sessions", "skills", "workspaces")
"""Files of tests/e2e that run again on Kubernetes 1.20, which has no rules of CRDs and no admission policies."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """How long something takes: minutes on a machine of factor 1, and minutes of waiting, which do not scale."""

    minutes: float
    waits: float = 0.0

    def on(self, factor: float) -> float:
        """Return the minutes on a machine of this factor."""
        return self.minutes * factor + self.waits


# A whole run in a fresh clone took 80 minutes on a machine of factor 0.8.
_SETUP: Final = Estimate(minutes=2.5, waits=5.5)
"""Virtual environment, images and cluster."""
_TESTS: Final = Estimate(minutes=6.0, waits=10.0)
_COVERAGE: Final = Estimate(minutes=8.0, waits=5.0)
_END_TO_END: Final = Estimate(minutes=5.0, waits=11.0)
_LONG_FILES: Final = Estimate(minutes=6.0, waits=9.0)
_OLDEST: Final = Estimate(minutes=5.0, waits=15.0)
"""With a cluster of its own, whose Kubernetes is built if no cache has it."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One run."""

    factor: float
    newest: bool
    """Whether the end-to-end tests run on the Kubernetes of KUBERNETES_BINARIES; else on 1.20 only."""
    part: str
    """The rotating part, or an empty text."""
    coverage: bool = True
    oldest: bool = True
    """Whether files run again on Kubernetes 1.20."""
    long_files: bool = True
    left_out: tuple[str, ...] = ()

    @property
    def minutes(self) -> float:
        """The estimate of the whole run."""
        done = [
            (_SETUP, True), (_TESTS, True), (_END_TO_END, True), (_COVERAGE, self.coverage),
            (_OLDEST, self.newest and self.oldest), (_LONG_FILES, self.long_files),
        ]  # fmt: skip
        part = PARTS[self.part].minutes * self.factor if self.part else 0.0
        return sum(each.on(self.factor) for each, runs in done if runs) + part

    def describe(self) -> list[str]:
        """Return the lines that a run prints first."""
        measured = " MEASURED=yes" if self.coverage else ""
        without = "" if self.long_files else f" WITHOUT={','.join(LONG_FILES)}"
        where = "on KUBERNETES_BINARIES" if self.newest else "on Kubernetes 1.20"
        lines = [f"make test{measured}{without}, {where}"]
        if self.newest and self.oldest:
            lines.append(f"ONLY={','.join(OLDEST)} make e2e, on Kubernetes 1.20")
        if self.part:
            lines.append(f"PART={self.part}")
        lines.append(f"about {self.minutes:.0f} minutes on this machine, factor {self.factor:.1f}")
        return [*lines, *(f"left out: {each}" for each in self.left_out)]


def choose_plan(*, factor: float, newest: bool, parts: Sequence[str]) -> Plan:
    """Return the plan with the first of the parts that fits, or without a part if none does."""
    plans = [make_plan(factor=factor, newest=newest, part=part) for part in parts or ("",)]
    return next((plan for plan in plans if plan.part), plans[0])


def make_plan(*, factor: float, newest: bool, part: str, budget: float = BUDGET_MINUTES) -> Plan:
    """Return the plan that fits into the budget, or the smallest one."""
    plan = Plan(factor=factor, newest=newest, part=part)
    for leave_out, name in _list_smaller(plan):
        if plan.minutes <= budget:
            break
        plan = replace(leave_out(plan), left_out=(*plan.left_out, name))
    return plan


def _list_smaller(plan: Plan) -> Sequence[tuple[Callable[[Plan], Plan], str]]:
    """Return what is left out first, second, ... and its name."""
    oldest = (lambda each: replace(each, oldest=False), "the tests on Kubernetes 1.20")
    return [
        (lambda each: replace(each, coverage=False), "the measurement of coverage"),
        *([oldest] if plan.newest else []),
        *([(lambda each: replace(each, part=""), f"the part {plan.part}")] if plan.part else []),
        (lambda each: replace(each, long_files=False), f"long files of tests/e2e: {', '.join(LONG_FILES)}"),
    ]


def measure_factor() -> float:
    """Return this machine's factor: the best of three measurements, since others may compute at the same time."""
    return min(_time_loop() for _ in range(3)) * (20_000_000 / _LOOP)


def _time_loop() -> float:
    start, total = perf_counter(), 0
    for number in range(_LOOP):
        total += number
    return perf_counter() - start
