"""Bodies that are passed on while they arrive."""

from collections.abc import AsyncIterator

import pytest

from mcp_exec_common.broker.files import MAX_UPLOAD_SECONDS
from mcp_exec_gateway.core.http.problems import HttpProblem
from mcp_exec_gateway.features.files.upload import UploadBody


async def test_an_upload_takes_no_longer_than_its_time_however_steadily_it_arrives() -> None:
    now = 0.0

    async def arrive() -> AsyncIterator[bytes]:
        nonlocal now
        while True:
            now += 30
            yield b"x" * 65536

    body = UploadBody(arrive(), limit=2**40, clock=lambda: now)

    async def receive() -> None:
        async for _ in body.read():
            pass

    with pytest.raises(HttpProblem, match="not complete after 1500 seconds") as caught:
        await receive()
    assert (caught.value.status, now) == (408, MAX_UPLOAD_SECONDS + 30)
    assert body.failure is caught.value
