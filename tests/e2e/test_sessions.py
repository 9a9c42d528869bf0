"""Sessions in real sandboxes: what stays between executions, and what a session outlives."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.support import NAMESPACE, RELEASE, SYSTEM, Cluster, Gateway, execution_manifest, leader
from tests.support.until import eventually

COLLECT = """
import csv, pathlib
from collections import Counter

rows = [{"region": "north", "amount": 3}, {"region": "south", "amount": 4}, {"region": "north", "amount": 5}]
with open("rows.csv", "w", newline="") as file:
    writer = csv.DictWriter(file, ["region", "amount"])
    writer.writeheader()
    writer.writerows(rows)
def by_region(entries):
    totals = Counter()
    for entry in entries:
        totals[entry["region"]] += int(entry["amount"])
    return dict(totals)
len(rows)
"""
ANALYSE = """
import asyncio

async def read():
    await asyncio.sleep(0)
    with open("rows.csv", newline="") as file:
        return list(csv.DictReader(file))

totals = by_region(await read())
pathlib.Path("/tmp/best").write_text(max(totals, key=totals.get))
totals == by_region(rows)
"""
REPORT = """
async def main():
    return {"totals": totals, "best": pathlib.Path("/tmp/best").read_text(), "factor": context["factor"]}
asyncio.run(main())
"""
LONG = """
import threading
held = "before"
threading.Event().wait(8)
held
"""


@pytest.fixture
def tidy(installed: Cluster) -> Iterator[None]:
    yield
    installed.delete("SandboxSession", *installed.names("SandboxSession"))


def test_a_workflow_of_three_executions_shares_variables_imports_and_files(
    installed: Cluster, pool: str, tidy: None
) -> None:
    def run(step: str, code: str, **spec: Any) -> dict[str, Any]:
        name = f"{step}-{pool}"
        installed.delete("CodeExecution", name)
        given = {"session": f"flow-{pool}", "poolRef": {"name": pool}, "context": {"factor": len(step)}}
        return installed.execute(name=name, code=code, **given | spec)

    steps = [run("collect", COLLECT), run("analyse", ANALYSE), run("report", REPORT)]
    results = [step["output"]["result"] for step in steps]
    report = {"totals": {"north": 8, "south": 4}, "best": "north", "factor": len("report")}
    assert results == [3, True, report]
    assert len({step["podUid"] for step in steps}) == 1
    assert [step["start"] for step in steps[1:]] == ["Session", "Session"]
    # the session of another user has the same name, and nothing of this one's
    other = run("other", "[name for name in ('rows', 'totals') if name in globals()]", user="somebody")
    assert (other["output"]["result"], other["podUid"] != steps[0]["podUid"]) == ([], True)
    # an error costs nothing; the end of the interpreter is said once
    failed = run("failed", "rows.append(1 / 0)")
    after = run("after", "len(rows)")
    assert (failed["reason"], after["output"]["result"]) == ("UserError", 3)

    def show() -> list[str]:
        lines = installed.kubectl("get", "sbs", f"flow-{pool}", "-n", NAMESPACE).splitlines()
        return [] if "Busy" in lines[1] else lines

    # the session is released after the execution's end is written
    header, row = eventually(show, what="the session is ready again")
    columns = ["NAME", "PHASE", "POOL", "OWNER", "POD", "EXECUTIONS", "MEMORY", "LAST", "USED", "AGE"]
    assert header.split() == columns
    assert row.split()[:4] == [f"flow-{pool}", "Ready", pool, "namespace"]
    died = run("died", "import os\nos._exit(1)")
    lost = run("lost", "len(rows)")
    fresh = run("fresh", "'rows' in globals()")
    assert (died["reason"], lost["reason"], fresh["output"]["result"]) == ("RunnerDied", "SessionLost", False)


@pytest.mark.timeout(300)
def test_sessions_outlive_the_gateway_and_the_operator_and_the_loss_of_their_pod_is_said_once(
    installed: Cluster, gateway: Gateway, runtimes: dict[str, str | None], tidy: None
) -> None:
    names = {pool: f"long-{pool}" for pool in runtimes}
    installed.delete("CodeExecution", *names.values())
    for pool, name in names.items():
        installed.apply(
            execution_manifest(name=name, code=LONG, session=name, poolRef={"name": pool}, timeoutSeconds=60)
        )
        gateway.run("held = 'by gateway'", session=name, poolRef={"name": pool})
    pods = {
        pool: eventually(
            lambda name=name: (installed.get("CodeExecution", name).get("status") or {}).get("podName"),
            seconds=30, every=0.2, what="the run begins",
        )
        for pool, name in names.items()
    }  # fmt: skip
    killed = leader(installed)
    installed.kubectl("delete", "pod", killed, "-n", SYSTEM, "--grace-period=0", "--force")
    installed.kubectl("rollout", "restart", "-n", SYSTEM, f"deployment/{RELEASE}-gateway")
    for pool, name in names.items():
        long = installed.finished(name)
        assert (long["output"]["result"], long["podName"]) == ("before", pods[pool])
    installed.rolled_out(f"{RELEASE}-gateway", namespace=SYSTEM, seconds=120)
    assert leader(installed) != killed
    for pool, name in names.items():
        again = gateway.run("held", session=name, poolRef={"name": pool})
        assert (again["output"]["result"], again["start"]) == ("by gateway", "Session")
        installed.delete("Pod", again["podName"], wait=False)  # kubelets take up to a minute
        eventually(
            lambda pod=again["podName"]: (
                pod not in [(each.get("status") or {}).get("podName") for each in installed.select("SandboxSession")]
            ),
            seconds=30, every=0.2, what="the loss of the pod is noticed",
        )  # fmt: skip
        said = gateway.run("held", session=name, poolRef={"name": pool})
        fresh = gateway.run("'held' in globals()", session=name, poolRef={"name": pool})
        assert (said["reason"], fresh["output"]["result"]) == ("SessionLost", False)
