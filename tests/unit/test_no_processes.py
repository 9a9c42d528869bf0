"""The guard of unit tests."""

import asyncio
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

import pytest
from tests.support.no_processes import ProcessStarted
from tests.unit.conftest import GUARD


async def spawn() -> None:
    await asyncio.create_subprocess_exec(sys.executable, "-V")


@pytest.mark.parametrize(
    "start",
    [
        lambda: subprocess.run([sys.executable, "-V"]),
        lambda: os.system("true"),
        os.fork,
        multiprocessing.get_context("fork").Process(target=int).start,
        lambda: asyncio.run(spawn()),
    ],
    ids=["subprocess", "system", "fork", "multiprocessing", "asyncio"],
)
def test_a_process_is_refused_even_if_the_refusal_is_caught(start: Callable[[], object]) -> None:
    with pytest.raises(ProcessStarted, match="belongs to tests/component"), GUARD.refuse(), suppress(ProcessStarted):
        start()
