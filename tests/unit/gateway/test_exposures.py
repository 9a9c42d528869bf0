"""Exposures that wait for their records: nobody drops those of others, and everybody's are sent soon."""

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any, cast

import pytest
from tests.support.until import until

from mcp_exec_api.wire.stats import KeyLimits
from mcp_exec_common.broker.records import MAX_RECORDS, RecordsClient
from mcp_exec_gateway.core.auth.callers import Caller
from mcp_exec_gateway.features.rollouts.exposures import ExposureLog
from mcp_exec_gateway.metrics import Metrics

WAITING = 10_000


class Records:
    """A broker's client that keeps what is added."""

    def __init__(self) -> None:
        self.batches: list[list[dict[str, Any]]] = []

    async def add(self, rows: dict[str, list[dict[str, Any]]]) -> None:
        self.batches.append(rows["exposures"])


def count_dropped(metrics: Metrics) -> float:
    [family] = metrics.exposures_dropped.collect()
    return next(each.value for each in family.samples if each.name.endswith("_total"))


@pytest.mark.parametrize("first", ["flood", "others"])
async def test_a_flood_of_units_drops_only_those_of_who_sends_it(first: str) -> None:
    records, metrics = Records(), Metrics(count_waits=lambda: 0, count_streams=lambda: 0)
    log = ExposureLog(client=cast(RecordsClient, records), metrics=metrics)

    def add(namespace: str, name: str, count: int) -> None:
        caller = Caller(name=name, label=name, namespace=namespace, limits=KeyLimits())
        for number in range(count):
            log.add(caller=caller, rollout="r", uid=namespace, unit=f"{name}-{number}", arm="a", stage="s")

    floods = [("b", f"flood-{number}", WAITING) for number in range(3)]
    others = [("a", "team", 20), ("b", "neighbour", 20)]
    for namespace, name, count in [*floods, *others] if first == "flood" else [*others, *floods]:
        add(namespace, name, count)
    running = asyncio.ensure_future(log.run())
    await until(lambda: sum(map(len, records.batches)) == WAITING)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    senders = Counter(str(row["unit"]).rpartition("-")[0] for batch in records.batches for row in batch)
    assert (senders["team"], senders["neighbour"]) == (20, 20)
    assert count_dropped(metrics) == 3 * WAITING + 40 - WAITING
    early = Counter(str(row["unit"]).rpartition("-")[0] for row in records.batches[0])
    assert len(records.batches[0]) <= MAX_RECORDS
    assert (early["team"], early["neighbour"]) == (20, 20)
