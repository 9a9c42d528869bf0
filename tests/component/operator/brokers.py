"""A broker that the operator finds by the EndpointSlices of its Service."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.broker import FakeBroker
from tests.support.world import KEY, World

from mcp_exec_common.kube.client import resource_path

RELEASE = "mcp-exec-system"
SERVICE = "mcp-exec-broker"
SLICES = resource_path("endpointslices", namespace=RELEASE, group="discovery.k8s.io/v1")


@asynccontextmanager
async def running_broker(world: World) -> AsyncIterator[FakeBroker]:
    """Run a replica and publish its slice."""
    async with FakeBroker(key=KEY, on_request=world.note).running() as broker:
        world.put(SLICES, broker.slice(name=SERVICE))
        yield broker
    assert broker.senders <= {"operator"}
