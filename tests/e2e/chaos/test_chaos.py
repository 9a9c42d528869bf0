"""One fault after another at random, under a steady load. The journal shows what the sandboxes really did.

MCP_EXEC_CHAOS_SECONDS says how long (`make chaos`: ten minutes). A report is written to `.cache/chaos/report.json`.
"""

import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import pytest

from tests.e2e.chaos.faults import SANDBOXES, Faults
from tests.e2e.journal import Journal, journal
from tests.e2e.load import ENDS, Load, executions, violations
from tests.e2e.providers import Devcluster, Provider
from tests.e2e.support import ROOT, Cluster, Gateway
from tests.support.until import eventually

SECONDS = float(os.environ.get("MCP_EXEC_CHAOS_SECONDS", "120"))
SEED = int(os.environ.get("MCP_EXEC_CHAOS_SEED", "20261122"))
EVERY = 2.0
"""Seconds from one execution to the next. At 0.6 two cores only gather a backlog while things break."""


@dataclass(kw_only=True)
class Report:
    """What was done and what came of it."""

    seconds: float
    seed: int
    faults: list[dict[str, Any]] = field(default_factory=list)
    executions: int = 0
    retried_requests: int = 0
    ends: dict[str, int] = field(default_factory=dict)
    seconds_to_last_end: float = 0.0
    seconds_to_warm: float = 0.0
    violations: list[str] = field(default_factory=list)

    def write(self) -> None:
        folder = ROOT / ".cache/chaos"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "report.json").write_text(json.dumps(asdict(self), indent=1) + "\n")


@pytest.fixture
def told(installed: Cluster) -> Iterator[Journal]:
    with journal(installed) as found:
        yield found


def break_things(faults: Faults, report: Report) -> None:
    """Until the time is up: a fault, its recovery, and a few seconds of peace. No fault twice before all were once."""
    pause, began = threading.Event(), time.monotonic()
    left: list[str] = []
    known = faults.all()
    while time.monotonic() - began < report.seconds:
        pause.wait(faults.random.uniform(2, 6))
        left = left or faults.random.sample(sorted(known), len(known))
        name, at = left.pop(), time.monotonic()
        known[name]()
        after, recovery = round(at - began, 1), round(time.monotonic() - at, 1)
        report.faults.append({"after": after, "fault": name, "recovery": recovery})


@pytest.mark.timeout(SECONDS + 600)
def test_nothing_is_lost_and_nothing_lies_while_everything_breaks(
    installed: Cluster, provider: Provider, gateway: Gateway, told: Journal
) -> None:
    assert isinstance(provider, Devcluster), f"the faults kill processes of this machine, a {provider.name} has others"
    report = Report(seconds=SECONDS, seed=SEED)
    faults = Faults(cluster=installed, provider=provider, random=random.Random(SEED))
    pools = tuple(pool["metadata"]["name"] for pool in installed.select("SandboxPool"))
    reusing = frozenset({"runc"})
    reuse_pods(installed, reusing, "Owner")
    with Load(client=gateway.client, journal=told.address, pools=pools, every=EVERY, reusing=reusing) as load:
        break_things(faults, report)
    over = time.monotonic()
    try:
        eventually(
            lambda: all(each.get("phase") in ENDS for each in executions(installed, load.names).values()),
            seconds=300, every=1, what="all executions end",
        )  # fmt: skip
        report.seconds_to_last_end = round(time.monotonic() - over, 1)
        installed.delete("SandboxSession", *installed.names("SandboxSession"))
        reuse_pods(installed, reusing, "Never")
        eventually(lambda: settled(installed), seconds=120, every=1, what="each pool has just its warm pods")
        report.seconds_to_warm = round(time.monotonic() - over, 1)
    finally:
        statuses = executions(installed, load.names)
        report.executions, report.retried_requests = len(load.names), load.retries
        report.ends = dict(
            Counter(f"{each.get('phase')} {each.get('reason', '')}".strip() for each in statuses.values())
        )
        report.violations = load.refused + violations(load, statuses, told.entries())
        report.write()
    assert report.violations == []
    assert report.ends.get("Succeeded", 0) > 0.7 * report.executions, report.ends


def reuse_pods(cluster: Cluster, pools: frozenset[str], scope: str) -> None:
    """Set whether the pods of these pools serve their owners again."""
    for pool in pools:
        cluster.merge("SandboxPool", pool, {"spec": {"reuse": {"scope": scope}}})


def settled(cluster: Cluster) -> bool:
    """Whether every pool has its warm pods, and no other pod is left."""
    pods = cluster.select("Pod", labels=SANDBOXES)
    live = Counter(
        pod["metadata"]["labels"]["mcp-exec.dev/pool"] for pod in pods if "deletionTimestamp" not in pod["metadata"]
    )
    pools = cluster.select("SandboxPool")
    wanted = {pool["metadata"]["name"]: pool["status"].get("desired", 0) for pool in pools}
    warm = {pool["metadata"]["name"]: pool["status"].get("warm", 0) for pool in pools}
    return warm == wanted and dict(live) == {name: number for name, number in wanted.items() if number}
