"""Liveness and readiness of the broker, in the form of the gateway's."""

from tests.component.broker.conftest import World
from tests.component.broker.servers import Toolbox


async def test_a_broker_that_has_listed_its_servers_is_ready(world: World, box: Toolbox) -> None:
    assert await world.ask("GET", "/readyz") == (200, {"status": "ready", "missing": []})
    assert await world.ask("GET", "/healthz") == (200, {"status": "ok"})


async def test_a_broker_is_not_ready_before_it_has_loaded_all_toolservers(world: World) -> None:
    reflector = next(iter(world.broker.tracker.reflectors.values()))
    reflector.synced.clear()
    assert await world.ask("GET", "/readyz") == (503, {"status": "starting", "missing": ["ToolServers in agents"]})
    assert (await world.ask("GET", "/healthz"))[0] == 200


async def test_a_draining_broker_is_not_ready(world: World) -> None:
    world.broker.health.is_draining = True
    assert await world.ask("GET", "/readyz") == (503, {"status": "stopping", "missing": []})


async def test_a_failed_background_task_ends_liveness(world: World) -> None:
    world.broker.health.failed_tasks.append("statuses")
    assert await world.ask("GET", "/healthz") == (503, {"status": "failed", "failed": ["statuses"]})
