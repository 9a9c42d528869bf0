"""The floor of bench/latency.py, against an API server on loopback."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import latency
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from harness import BenchCluster
from tests.support.api_server import FakeApiServer
from tests.support.constants import DEADLINE

from mcp_exec_common.kube.client import KubeClient
from mcp_exec_common.kube.credentials import KubeCredentials


async def answer(request: web.Request) -> web.Response:
    return web.json_response({"state": "idle"})


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[BenchCluster]:
    app = web.Application()
    app.router.add_get("/healthz", answer)
    async with FakeApiServer().running() as api, TestServer(app, host="127.0.0.1") as peer:
        monkeypatch.setattr(latency, "SUPERVISOR_PORT", peer.port)
        async with aiohttp.ClientSession(base_url=api.url) as kube, aiohttp.ClientSession() as session:
            client = KubeClient(session=kube, credentials=KubeCredentials(server=""), retry_delays=())
            yield BenchCluster(kube=client, session=session, gateway="", headers={})


async def test_a_floor_opens_although_the_last_one_left_its_objects(bench: BenchCluster) -> None:
    async with asyncio.timeout(DEADLINE):
        for concurrency in (1, 4):
            async with latency.open_floor(bench, namespace="bench-1", peer="127.0.0.1") as floor:
                names = [f"floor-{concurrency}-{number}" for number in range(concurrency)]
                assert min(await asyncio.gather(*map(floor.sample, names))) > 0
