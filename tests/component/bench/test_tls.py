"""The benchmark of protected connections."""

import shutil

import pytest
import tls
from tests.support.constants import DEADLINE

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")


async def test_each_kind_of_connection_is_measured() -> None:
    async with tls.asyncio.timeout(2 * DEADLINE), tls.serving() as servers:
        for what in ("run", "call"):
            for measured in (await tls.measure_kept(servers, what, 2), await tls.measure_new(servers, what, 2)):
                assert set(measured) == {"plain", "proof", "TLS"}
                assert all(len(timings.wall) == 2 for timings in measured.values())
    assert await tls.measure_memory("proof") >= 0
