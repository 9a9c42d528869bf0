"""A broker that the operator finds by its Endpoints."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.broker import FakeBroker
from tests.support.world import KEY, World

from mcp_exec_common.kube.client import resource_path

RELEASE = "mcp-exec-system"
SERVICE = "mcp-exec-broker"
ENDPOINTS = resource_path("endpoints", namespace=RELEASE)


@asynccontextmanager
async def running_broker(world: World) -> AsyncIterator[FakeBroker]:
    """Run a replica and publish its Endpoints."""
    async with FakeBroker(key=KEY, on_request=world.note).running() as broker:
        world.put(ENDPOINTS, broker.endpoints(name=SERVICE))
        yield broker
    assert broker.senders <= {"operator"}
