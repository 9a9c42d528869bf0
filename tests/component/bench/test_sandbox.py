"""The client of bench/sandbox.py, on a real supervisor."""

import asyncio

import pytest
import sandbox


@pytest.mark.timeout(180)
async def test_each_run_has_a_first_event_and_an_end() -> None:
    row = await asyncio.to_thread(sandbox.measure_loopback, rounds=2)
    assert set(row) == {"first event ms", "end ms", "100 MB s"}
    assert 0 < row["first event ms"] <= row["end ms"]
