"""Number of API writes per execution, counted in the API server's audit log.

Every write of the operator and the gateway that names the execution or its pod counts, and so does the creation of the
pod that replaces the used one. Writes of a pool's status, which all executions share, and writes of the cluster itself
(scheduler, kubelet) are counted separately. With --reuse, the pool reuses pods; the first execution, whose pod gets its
owner, is not counted.

    KUBECONFIG=... python bench/writes.py --audit-log FILE [--executions 20] [--reuse] [--json writes.json]
"""

import argparse
import json
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from harness import NAMESPACE, RELEASE, SYSTEM, BenchCluster, connect_release, parser, run, table, write_json

from mcp_exec_common.kube.client import custom_resource_path

WRITES = frozenset({"create", "update", "patch", "delete"})
OURS = {f"system:serviceaccount:{SYSTEM}:{RELEASE}-{part}": part for part in ("operator", "gateway")}


def writes_since(log: Path, offset: int, *, namespaces: Collection[str] = (NAMESPACE, SYSTEM)) -> list[dict[str, Any]]:
    """Read the finished and accepted writes to these namespaces in the audit log from an offset in bytes on."""
    with log.open("rb") as file:
        file.seek(offset)
        events = [json.loads(line) for line in file if line.endswith(b"\n")]
    return [
        event
        for event in events
        if event["verb"] in WRITES
        and event["stage"] == "ResponseComplete"
        and event["responseStatus"]["code"] < 300
        and event.get("objectRef", {}).get("namespace") in namespaces
    ]


def count_by_user(log: Path, offset: int, *, namespaces: Collection[str]) -> dict[str, int]:
    """Count the writes from an offset on by the user who made them, without the prefix of Kubernetes' own users."""
    users = Counter(event["user"]["username"] for event in writes_since(log, offset, namespaces=namespaces))
    return {user.rpartition(":")[2]: count for user, count in users.most_common()}


def moment(text: str) -> datetime:
    """Parse a time stamp of the audit log or of a status."""
    return datetime.fromisoformat(text)


def name_write(event: dict[str, Any]) -> str:
    """Name the writer and the kind of a write, for a row of the table."""
    target = event["objectRef"]
    resource = "/".join(part for part in (target["resource"], target.get("subresource")) if part)
    who = OURS.get(event["user"]["username"], "cluster")
    return f"{who}: {event['verb']} {resource}"


@asynccontextmanager
async def reusing(bench: BenchCluster, arguments: argparse.Namespace) -> AsyncIterator[None]:
    """Let the pool reuse pods, if requested, and use one for the first time."""
    if arguments.reuse:
        await bench.change(arguments.pool, {"reuse": {"scope": "Owner"}})
        await bench.execute("print(1)", pool=arguments.pool)
    await bench.wait_until_settled(arguments.pool)
    try:
        yield
    finally:
        if arguments.reuse:
            await bench.change(arguments.pool, {"reuse": {"scope": "Never"}})


async def main() -> None:
    """Run the command."""
    options = parser(__doc__, pool="gvisor")
    options.add_argument("--audit-log", type=Path, required=True)
    options.add_argument("--executions", type=int, default=20)
    options.add_argument("--reuse", action="store_true", help="count executions in reused pods")
    arguments = options.parse_args()
    async with connect_release() as bench, reusing(bench, arguments):
        offset = arguments.audit_log.stat().st_size
        statuses = []
        for _ in range(arguments.executions):
            answer = await bench.execute("print(1)", pool=arguments.pool)
            path = custom_resource_path("codeexecutions", namespace=NAMESPACE, name=answer["name"])
            statuses.append((answer["name"], (await bench.kube.get(path))["status"]))
            await bench.wait_until_settled(arguments.pool)
        events = writes_since(arguments.audit_log, offset)
    counts = Counter(name_write(event) for event in events)
    ours = sum(
        number
        for kind, number in counts.items()
        if not kind.startswith("cluster") and not kind.endswith(("sandboxpools/status", "events", "leases"))
    )
    early = [
        sum(
            1
            for event in events
            if event["user"]["username"] in OURS
            and event["objectRef"].get("name") == name
            and moment(event["stageTimestamp"]) <= moment(status["startedAt"])
        )
        for name, status in statuses
    ]
    number = arguments.executions
    rows = {kind: {"in all": count, "an execution": round(count / number, 2)} for kind, count in sorted(counts.items())}
    rows["SUM, operator and gateway, without pool status and lease"] = {
        "in all": ours,
        "an execution": round(ours / number, 2),
    }
    rows["most before the code starts"] = {"in all": max(early), "an execution": max(early)}
    print(table(rows))
    write_json(arguments.json, {"executions": number, "rows": rows})


if __name__ == "__main__":
    run(main())
