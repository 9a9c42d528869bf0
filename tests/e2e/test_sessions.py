"""Sessions in real sandboxes: what stays between executions, and what a session outlives."""

import json
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
    installed: Cluster, gateway: Gateway, pool: str, tidy: None
) -> None:
    def run(step: str, code: str, **spec: Any) -> dict[str, Any]:
        given = {"session": f"flow-{pool}", "poolRef": {"name": pool}, "context": {"factor": len(step)}}
        return gateway.run(code, **given | spec)

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

    sessions = {each["spec"].get("user", ""): each["metadata"]["name"] for each in installed.select("SandboxSession")}

    def show() -> list[str]:
        lines = installed.kubectl("get", "sbs", sessions[""], "-n", NAMESPACE).splitlines()
        return [] if "Busy" in lines[1] else lines

    # the session is released after the execution's end is written
    header, row = eventually(show, what="the session is ready again")
    columns = ["NAME", "PHASE", "POOL", "OWNER", "POD", "EXECUTIONS", "MEMORY", "LAST", "USED", "AGE"]
    assert header.split() == columns
    assert row.split()[:4] == [sessions[""], "Ready", pool, after["caller"]]
    died = run("died", "import os\nos._exit(1)")
    lost = run("lost", "len(rows)")
    fresh = run("fresh", "'rows' in globals()")
    assert (died["reason"], lost["reason"], fresh["output"]["result"]) == ("RunnerDied", "SessionLost", False)


def test_a_session_of_kubectl_is_that_of_the_account_or_refused_where_nothing_proves_it(
    installed: Cluster, pool: str, tidy: None
) -> None:
    names = {account: f"kept-{account}-{pool}" for account in ("ann", "eve")}
    installed.delete("CodeExecution", *names.values())
    for account, name in names.items():
        manifest = execution_manifest(name=name, code="1", session=f"own-{pool}", poolRef={"name": pool})
        installed.kubectl(
            "apply", "--as", account, "--as-group", "system:masters", "-f", "-", stdin=json.dumps(manifest)
        )
    own, other = (installed.finished(name) for name in names.values())
    assert other["reason"] == "Rejected"
    if installed.records_accounts:
        assert (own["phase"], own["output"]["result"]) == ("Succeeded", 1)
        assert installed.get("SandboxSession", f"own-{pool}")["status"]["owner"] == "k8s/ann"
    else:
        assert own["reason"] == "Rejected"
        assert "nothing proves who created this execution" in own["error"]["message"]


@pytest.mark.timeout(300)
def test_sessions_outlive_the_gateway_and_the_operator_and_the_loss_of_their_pod_is_said_once(
    installed: Cluster, gateway: Gateway, runtimes: dict[str, str | None], tidy: None
) -> None:
    names = {pool: f"long-{pool}" for pool in runtimes}
    installed.delete("CodeExecution", *names.values())
    for pool, name in names.items():
        spec = {"code": LONG, "session": name, "poolRef": {"name": pool}, "timeoutSeconds": 60}
        gateway.client.post("/v1/executions", params={"wait": "0"}, json={"name": name, **spec}).raise_for_status()
        gateway.run("held = 'by gateway'", session=f"{name}-too", poolRef={"name": pool})
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
        again = gateway.run("held", session=f"{name}-too", poolRef={"name": pool})
        assert (again["output"]["result"], again["start"]) == ("by gateway", "Session")
        installed.delete("Pod", again["podName"], wait=False)  # kubelets take up to a minute
        eventually(
            lambda pod=again["podName"]: (
                pod not in [(each.get("status") or {}).get("podName") for each in installed.select("SandboxSession")]
            ),
            seconds=30, every=0.2, what="the loss of the pod is noticed",
        )  # fmt: skip
        said = gateway.run("held", session=f"{name}-too", poolRef={"name": pool})
        fresh = gateway.run("'held' in globals()", session=f"{name}-too", poolRef={"name": pool})
        assert (said["reason"], fresh["output"]["result"]) == ("SessionLost", False)
