"""Discovery of the broker's replicas from the EndpointSlices of its Service."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from tests.support.api_server import FakeApiServer
from tests.support.broker import FakeBroker
from tests.support.until import until

from mcp_exec_common.broker.client import BrokerClient, BrokerError, follow_broker
from mcp_exec_common.kube.client import KubeClient, resource_path
from mcp_exec_common.kube.credentials import KubeCredentials
from mcp_exec_common.sandbox_keys import SandboxKeys

KEY = b"the key of the sandboxes"
SLICES, OLDER_SLICES = (
    resource_path("endpointslices", namespace="system", group=f"discovery.k8s.io/{version}")
    for version in ("v1", "v1beta1")
)


@asynccontextmanager
async def following(api: FakeApiServer) -> AsyncIterator[BrokerClient]:
    async with aiohttp.ClientSession(base_url=api.url) as kube_session, aiohttp.ClientSession() as session:
        kube = KubeClient(
            session=kube_session, credentials=KubeCredentials(server=""), retry_delays=(0.001,), timeout_seconds=5
        )
        brokers, reflector = follow_broker(
            kube=kube, session=session, namespace="system", service="broker", keys=SandboxKeys(KEY), sender="operator"
        )
        async with reflector.run_in_background():
            yield brokers


async def test_the_list_of_replicas_follows_the_slices_of_the_service() -> None:
    async with FakeApiServer().running() as api, FakeBroker(key=KEY).running() as broker:
        api.put(SLICES, broker.slice("192.0.2.1", name="another"))
        async with following(api) as brokers:
            with pytest.raises(BrokerError, match="no broker replica is ready"):
                await brokers.get("/v1/namespaces/agents/catalog")
            await api.until_asked(lambda: any("watch" in seen.query for seen in api.seen))
            api.put(SLICES, broker.slice("192.0.2.2", name="another"))
            api.put(SLICES, broker.slice(name="broker"))
            api.drop_watches()
            await until(lambda: brokers.addresses() == [f"127.0.0.1:{broker.port}"])
            assert (await brokers.get("/v1/namespaces/agents/catalog"))["hash"] == "none"
            assert (await brokers.get_from(brokers.addresses()[0], "/v1/namespaces/x/catalog"))["servers"] == []
    assert broker.senders == {"operator"}


async def test_a_replica_stays_when_another_slice_takes_it() -> None:
    async with FakeApiServer().running() as api, FakeBroker(key=KEY).running() as broker, following(api) as brokers:
        api.put(SLICES, broker.slice("192.0.2.1", name="broker", suffix="first"))
        await until(lambda: len(brokers.addresses()) == 1)
        api.put(SLICES, broker.slice("192.0.2.1", "192.0.2.2", name="broker", suffix="second"))
        await until(lambda: len(brokers.addresses()) == 2)
        api.remove(SLICES, "broker-first")
        api.put(SLICES, broker.slice("192.0.2.3", name="broker", suffix="third"))
        await until(lambda: len(brokers.addresses()) == 3)
        assert [address.rpartition(":")[0] for address in brokers.addresses()] == [
            "192.0.2.1", "192.0.2.2", "192.0.2.3",
        ]  # fmt: skip


async def test_slices_are_read_in_the_version_that_the_server_has_also_when_it_changes() -> None:
    async with FakeApiServer().running() as api, FakeBroker(key=KEY).running() as broker:
        api.unserved.add("discovery.k8s.io/v1")
        api.put(OLDER_SLICES, broker.slice("192.0.2.1", name="broker"))
        async with following(api) as brokers:
            await until(lambda: brokers.addresses() == [f"192.0.2.1:{broker.port}"])
            api.put(SLICES, broker.slice("192.0.2.2", name="broker"))
            api.unserved = {"discovery.k8s.io/v1beta1"}
            await until(lambda: api.count_watches() == 1)
            await api.expire_watches()
            await until(lambda: brokers.addresses() == [f"192.0.2.2:{broker.port}"])
