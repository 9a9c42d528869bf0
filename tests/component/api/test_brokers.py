"""Discovery of the broker's replicas from its Service's Endpoints."""

import aiohttp
import pytest
from tests.support.api_server import FakeApiServer
from tests.support.broker import FakeBroker

from mcp_exec_common.broker.client import BrokerError, connect_broker
from mcp_exec_common.kube.client import KubeClient, resource_path
from mcp_exec_common.kube.credentials import KubeCredentials

KEY = b"the key of the sandboxes"


async def test_the_list_of_replicas_follows_the_endpoints() -> None:
    endpoints = resource_path("endpoints", namespace="system")
    async with (
        FakeApiServer().running() as api,
        FakeBroker(key=KEY).running() as broker,
        aiohttp.ClientSession(base_url=api.url) as kube_session,
        aiohttp.ClientSession() as session,
    ):
        kube = KubeClient(
            session=kube_session, credentials=KubeCredentials(server=""), retry_delays=(0.001,), timeout_seconds=5
        )
        api.put(endpoints, broker.endpoints("192.0.2.1", name="another"))
        async with connect_broker(
            kube=kube, session=session, namespace="system", service="broker", key=KEY, sender="operator"
        ) as brokers:
            with pytest.raises(BrokerError, match="no broker replica is ready"):
                await brokers.get("/v1/namespaces/agents/catalog")
            api.put(endpoints, broker.endpoints(name="broker"))
            await api.until_asked(lambda: any("watch" in seen.query for seen in api.seen))
            api.drop_watches()
            while not brokers.addresses():
                await api.until_asked(lambda: True)
            assert (await brokers.get("/v1/namespaces/agents/catalog"))["hash"] == "none"
            assert (await brokers.get_from(brokers.addresses()[0], "/v1/namespaces/x/catalog"))["servers"] == []
    assert broker.senders == {"operator"}
