"""The API server of the processes whose ports are tried."""

from collections.abc import AsyncIterator

import pytest
from tests.support.api_server import FakeApiServer


@pytest.fixture
async def api() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer().running() as server:
        yield server
