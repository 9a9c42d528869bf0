"""Measure what records cost: tool calls through real broker processes without records, on SQLite and on PostgreSQL.

Three brokers run at the same time and are called in alternating rounds, so that the machine's noise meets all of them.
Each has a server of its own (bench/tool_server.py, a millisecond a call). The broker copies its calls to the records in
the background: the figures show what that takes from calls in progress. A second table has rows of executions as the
operator sends them, a hundred at a time. PostgreSQL is Debian's, without fsync, on loopback; without it, its rows are
left out.

    python bench/records.py --json records.json
"""

import argparse
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
from harness import parser, percentile, run, table, write_json
from tests.support.postgres import Postgres, find_programs
from tools import DEADLINE, KEY, Sandboxes, measure_round, run_broker, run_tool_server, summarize, wait_for_success
from waits import within

from mcp_exec_common.broker.client import BrokerClient
from mcp_exec_common.broker.grants import GrantSigner
from mcp_exec_common.broker.records import RecordsClient
from mcp_exec_common.sandbox_keys import SandboxKeys

AT_ONCE = (1, 16)
BATCH = 100
OFF = "off"


class MeasuredBroker:
    """A broker with one kind of records, and what was measured of it."""

    def __init__(self, name: str, url: str, control_port: int, session: aiohttp.ClientSession) -> None:
        self.name = name
        self.sandboxes = Sandboxes(url, session, number=2)
        broker = BrokerClient(
            session=session,
            signer=GrantSigner(keys=SandboxKeys(KEY)),
            sender="operator",
            addresses=lambda: [f"127.0.0.1:{control_port}"],
        )
        self.records = RecordsClient(broker)
        self.samples: dict[int, list[float]] = {at_once: [] for at_once in AT_ONCE}
        self.rates: dict[int, list[float]] = {at_once: [] for at_once in AT_ONCE}
        self.batches: list[float] = []

    async def measure(self, *, at_once: int, calls: int) -> None:
        """Call the tool."""
        times, rate = await measure_round(self.sandboxes.call, at_once=at_once, calls=calls)
        self.samples[at_once] += times
        self.rates[at_once].append(rate)

    async def store(self, start: int) -> None:
        """Store the rows of a hundred executions."""
        rows = [
            {
                "uid": f"{start}-{number}",
                "namespace": "agents",
                "name": f"run-{start}-{number}",
                "phase": "Succeeded",
                "created_at": start,
                "code_digest": "sha256:" + "0" * 64,
            }
            for number in range(BATCH)
        ]
        began = time.perf_counter()
        async with within(DEADLINE, f"{self.name} to store {BATCH} rows"):
            added = await self.records.add({"executions": rows})
        if added.stored != BATCH:
            raise RuntimeError(f"{self.name} stored {added.stored} of {BATCH} rows")
        self.batches.append((time.perf_counter() - began) * 1000)


async def start_broker(
    stack: AsyncExitStack, name: str, session: aiohttp.ClientSession, **settings: str
) -> MeasuredBroker:
    """Start a broker with its server, and wait until it answers calls."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    tools = await stack.enter_async_context(run_tool_server(folder))
    broker = await stack.enter_async_context(
        run_broker(folder, tools=tools, concurrency=max(AT_ONCE), settings=settings)
    )
    measured = MeasuredBroker(name, broker.url, broker.control_port, session)
    await wait_for_success(measured.sandboxes.call)
    return measured


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run all rounds."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        settings: dict[str, dict[str, str]] = {OFF: {}, "SQLite": {"RECORDS_FILE": str(folder / "records.sqlite")}}
        if find_programs() is not None:
            postgres = await stack.enter_async_context(Postgres.running())
            (folder / "url").write_text(postgres.url)
            settings["PostgreSQL"] = {"RECORDS_DATABASE_FILE": str(folder / "url")}
        brokers = [await start_broker(stack, name, session, **given) for name, given in settings.items()]
        for at_once in AT_ONCE:
            for _ in range(options.rounds):
                for broker in brokers:
                    await broker.measure(at_once=at_once, calls=options.calls)
        for batch in range(options.batches):
            for broker in brokers[1:]:
                await broker.store(time.time_ns() // 1000 + batch)
        return report(brokers)


def report(brokers: list[MeasuredBroker]) -> dict[str, Any]:
    """Print the tables, and return them with all samples."""
    results: dict[str, Any] = {"calls": {}, "batches": {}, "samples": {}}
    for at_once in AT_ONCE:
        rows = {broker.name: summarize(broker.samples[at_once], broker.rates[at_once]) for broker in brokers}
        for broker in brokers:
            row, off = rows[broker.name], rows[OFF]
            row["p95 ms"] = round(percentile(broker.samples[at_once], 0.95), 2)
            row["p50 / off"] = round(row["p50 ms"] / off["p50 ms"], 2)
            row["calls/s / off"] = round(row["calls/s"] / off["calls/s"], 2)
        print(f"\ntool calls, {at_once} at once:")
        print(table(rows))
        results["calls"][str(at_once)] = rows
        results["samples"][str(at_once)] = {broker.name: broker.samples[at_once] for broker in brokers}
    results["batches"] = {
        broker.name: {
            "batches": len(broker.batches),
            **{f"p{share} ms": round(percentile(broker.batches, share / 100), 2) for share in (50, 95, 99)},
            "rows/s": round(BATCH * len(broker.batches) / (sum(broker.batches) / 1000)),
        }
        for broker in brokers[1:]
    }
    print(f"\nrows of executions, {BATCH} at a time:")
    print(table(results["batches"]))
    return results


def main() -> None:
    """Run the command."""
    options = parser(__doc__)
    options.add_argument("--calls", type=int, default=300, help="calls per round and broker (default: 300)")
    options.add_argument("--rounds", type=int, default=5, help="rounds per broker (default: 5)")
    options.add_argument("--batches", type=int, default=50, help="batches of rows per broker (default: 50)")
    arguments = options.parse_args()
    write_json(arguments.json, run(measure(arguments)))


if __name__ == "__main__":
    main()
