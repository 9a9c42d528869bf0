"""Timeline of an execution: where each millisecond is, from the client through gateway, API server and operator.

So many clients send executions on simulated nodes, each one after the other (closed loop). Gateway and operator record
when an execution passes them (stamps.py), and the audit log has when the API server received and answered its writes.
The stages follow each other, so that their means add up to the client's time. A stage of a watch is negative if the
event came before the answer to the write was recorded. Without an audit log, the API server's stages are part of the
next ones.

It also shows how late the event loops ran, and how long the threads of each process waited for a processor.

    KUBECONFIG=... python bench/timeline.py --concurrency 1 16 --audit-log FILE --json timeline.json
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, Final

from harness import BenchCluster, parser, percentile, run, summary, table, write_json
from simulated import NAMESPACE, POOL, SimulatedRelease, release
from writes import moment, writes_since

Moments = dict[str, float]
"""Seconds of the wall clock by point."""

START: Final = "client sent"
STAGES: Final[Mapping[str, str]] = {
    "gateway received": "client to gateway",
    "gateway create sent": "gateway: checks, name, proof",
    "server create received": "way of the creation",
    "server create answered": "API server: creation",
    "operator event received": "watch to the operator",
    "operator bind sent": "operator: pod, job",
    "server bind received": "way of the binding",
    "server bind answered": "API server: binding",
    "operator bind answered": "way of the answer",
    "operator dispatched": "operator: before the run",
    "operator ended": "sandbox, and its events",
    "operator finish sent": "operator: status",
    "server finish received": "way of the last status",
    "server finish answered": "API server: last status",
    "gateway end observed": "watch to the gateway",
    "gateway responded": "gateway: response",
    "client answered": "gateway to client",
}
"""The points that an execution passes in this order, and what happens before each."""
TOTAL: Final = "in all"
SETTLE_SECONDS: Final = 300


async def send(bench: BenchCluster, *, concurrency: int, number: int) -> dict[str, Moments]:
    """Send so many executions, `concurrency` at once. Return what the client saw by the execution's name.

    Raises RuntimeError if one fails. One that waited for a cold pod does not count.
    """
    found: dict[str, Moments] = {}
    left = list(range(number))

    async def work() -> None:
        while left:
            left.pop()
            sent = time.time()
            answer = await bench.execute("print(1)", pool=POOL)
            if answer.get("phase") != "Succeeded":
                raise RuntimeError(f"an execution did not succeed: {answer}")
            if answer.get("start") == "Warm":
                found[answer["name"]] = {START: sent, "client answered": time.time()}

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(work())
    return found


def read_server(log: Path, offset: int) -> dict[str, Moments]:
    """Return when the API server received and answered creation, binding and last status, by name."""
    found: dict[str, Moments] = {}
    for event in writes_since(log, offset, namespaces=(NAMESPACE,)):
        target = event["objectRef"]
        if target["resource"] != "codeexecutions" or event["verb"] not in ("create", "update"):
            continue
        moments = found.setdefault(target["name"], {})
        what = "create" if event["verb"] == "create" else "finish" if "bind received" in moments else "bind"
        moments[f"{what} received"] = moment(event["requestReceivedTimestamp"]).timestamp()
        moments[f"{what} answered"] = moment(event["stageTimestamp"]).timestamp()
    return found


def join(client: Mapping[str, Moments], parts: Mapping[str, Mapping[str, Moments]]) -> list[Moments]:
    """Return all moments of each execution of the client."""
    return [
        seen | {f"{part} {what}": at for part, found in parts.items() for what, at in found.get(name, {}).items()}
        for name, seen in client.items()
    ]


def divide(executions: Sequence[Moments]) -> dict[str, dict[str, float]]:
    """Return p50, p99 and mean of each stage in milliseconds. Points that an execution lacks are no stage."""
    points = [point for point in STAGES if all(point in each for each in executions)]
    rows, before = {}, START
    for point in points:
        rows[STAGES[point]] = _summarize([(each[point] - each[before]) * 1000 for each in executions])
        before = point
    return rows | {TOTAL: _summarize([(each[before] - each[START]) * 1000 for each in executions])}


def _summarize(samples: Sequence[float]) -> dict[str, float]:
    shares = {f"p{round(100 * share)}": round(percentile(samples, share), 2) for share in (0.5, 0.99)}
    return {**shares, "mean": round(mean(samples), 2)}


def waited_seconds(pid: int) -> float:
    """Return how long the threads of a process, as far as they still run, were ready but had no processor."""
    waited = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            waited += int(path.read_text().split()[1])
        except (OSError, IndexError):
            continue  # the thread has ended
    return waited / 1e9


async def measure_level(made: SimulatedRelease, *, concurrency: int, number: int) -> tuple[dict[str, Moments], Any]:
    """Send executions at one concurrency. Return what the client saw, and how long processes waited for a processor."""
    await made.bench.wait_until_settled(POOL, seconds=SETTLE_SECONDS)
    before = {name: waited_seconds(pid) for name, pid in made.pids.items()}
    client = await send(made.bench, concurrency=concurrency, number=number)
    waits = {name: (waited_seconds(pid) - before[name]) * 1000 / number for name, pid in made.pids.items()}
    return client, {name: round(milliseconds, 2) for name, milliseconds in waits.items()}


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure each concurrency, one after the other, and read what the parts recorded after their end."""
    log = options.audit_log if options.audit_log is not None and options.audit_log.is_file() else None
    offset = log.stat().st_size if log is not None else 0
    levels = {}
    with tempfile.TemporaryDirectory(prefix="mcp-exec-bench-") as name:
        folder = Path(name)
        async with release(warm=options.warm, nodes=options.node_count, stamps=folder) as made:
            await made.bench.wait_until_settled(POOL, seconds=SETTLE_SECONDS)
            await send(made.bench, concurrency=max(options.concurrency), number=options.warm_up)
            for concurrency in options.concurrency:
                number = max(concurrency, options.executions)
                levels[concurrency] = await measure_level(made, concurrency=concurrency, number=number)
            server = read_server(log, offset) if log is not None else {}
        recorded = {part: json.loads((folder / f"{part}.json").read_text()) for part in ("gateway", "operator")}
    parts = {"server": server, **{part: found["moments"] for part, found in recorded.items()}}
    return {
        "concurrency": {
            str(concurrency): {
                "executions": len(client), "stages": divide(join(client, parts)), "waits for a processor, ms": waits,
            }
            for concurrency, (client, waits) in levels.items()
        },
        "event loop late, ms": {part: summary(found["lags"]) for part, found in recorded.items()},
    }  # fmt: skip


def show(found: Mapping[str, Any]) -> None:
    """Print a table for each concurrency, and how late event loops and threads were."""
    for concurrency, level in found["concurrency"].items():
        print(f"\n{concurrency} at once, {level['executions']} warm executions, ms")
        print(table(level["stages"]))
        print("\nready threads that waited for a processor, ms of an execution")
        print(table({name: {"ms": waited} for name, waited in level["waits for a processor, ms"].items()}))
    print("\nevent loops, ms too late")
    print(table(found["event loop late, ms"]))


def main() -> None:
    """Run the command."""
    options = parser(__doc__)
    options.add_argument("--concurrency", type=int, nargs="+", default=[1, 16], help="clients (default: 1 and 16)")
    options.add_argument("--executions", type=int, default=300, help="executions of each concurrency (default: 300)")
    options.add_argument("--warm-up", type=int, default=50, help="executions before, which do not count (default: 50)")
    options.add_argument("--warm", type=int, default=150, help="warm pods (default: 150)")
    options.add_argument("--node-count", type=int, default=50, help="simulated nodes (default: 50)")
    options.add_argument("--audit-log", type=Path, help="the API server's audit log")
    arguments = options.parse_args()
    found = run(measure(arguments))
    show(found)
    write_json(arguments.json, found)


if __name__ == "__main__":
    main()
