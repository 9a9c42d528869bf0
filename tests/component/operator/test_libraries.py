"""Libraries of the pools' images: read once of a pod, written to the pool's status, and sent to pods that lack them."""

import asyncio
from collections.abc import Callable
from typing import Any

from aiohttp import web
from tests.support.supervisor import FakeSupervisor
from tests.support.world import SBP, World

Operating = Callable[..., Any]
PANDAS = {"name": "pandas", "version": "2.3.1", "imports": ["pandas"]}
NUMPY = {"name": "numpy", "version": "2.3.0", "imports": ["numpy"]}
PILLOW = {"name": "pillow", "version": "11.0.0", "imports": ["PIL"]}


def put_pool(world: World, name: str, **spec: Any) -> None:
    world.put(
        SBP, {"metadata": {"name": name, "generation": 1}, "spec": {"image": "sandbox", "warm": {"min": 1}} | spec}
    )


def status_of(world: World, name: str) -> Any:
    return world.collections[SBP][name].get("status") or {}


async def test_a_pool_lists_python_and_libraries_of_its_image(world: World, operating: Operating) -> None:
    world.libraries = {"data": [PANDAS, NUMPY]}
    put_pool(world, "data", warm={"min": 3})
    async with operating():
        await world.until(lambda: status_of(world, "data").get("libraries"))
        await world.until(lambda: status_of(world, "data").get("warm") == 3)
    assert status_of(world, "data")["python"] == "3.11.2"
    assert status_of(world, "data")["libraries"] == [PANDAS, NUMPY]
    assert world.listed == 1


async def test_an_execution_gets_the_libraries_that_only_other_pools_have(world: World, operating: Operating) -> None:
    world.libraries = {"data": [PANDAS, NUMPY], "images": [NUMPY | {"version": "2.2.0"}, PILLOW], "default": [PILLOW]}
    world.pool()
    for name in ("data", "images"):
        put_pool(world, name)
    async with operating():
        await world.until(
            lambda: all(status_of(world, name).get("libraries") for name in ("data", "images", "default"))
        )
        one, two = world.execution("one"), world.execution("two", poolRef={"name": "data"})
        for name in ("one", "two"):
            await world.finished(name)
    hints = {job["id"]: job.get("libraries") for job in world.jobs}
    assert hints[one] == {"numpy": [["data", "2.3.0"], ["images", "2.2.0"]], "pandas": [["data", "2.3.1"]]}
    assert hints[two] == {"PIL": [["default", "11.0.0"], ["images", "11.0.0"]]}


async def test_nothing_is_sent_if_no_other_pool_has_more(world: World, operating: Operating) -> None:
    world.libraries = {"default": [PANDAS]}
    world.pool()
    async with operating():
        await world.until(lambda: status_of(world, "default").get("libraries"))
        world.execution("one")
        await world.finished("one")
    assert "libraries" not in world.jobs[0]


async def test_a_supervisor_of_an_earlier_release_gets_no_field_that_it_would_refuse(
    world: World, operating: Operating
) -> None:
    def refuse(supervisor: FakeSupervisor, name: str, request: Any) -> Any:
        return answer_404 if name == "libraries" and supervisor.pod.startswith("default-") else None

    world.libraries = {"data": [PANDAS]}
    world.attack = refuse
    world.pool()
    put_pool(world, "data")
    async with operating():
        await world.until(lambda: status_of(world, "data").get("libraries"))
        await world.warm(1)
        world.execution("one")
        await world.finished("one")
    assert "libraries" not in world.jobs[0]
    assert "python" not in world.pool_status() or world.pool_status()["python"] is None


async def test_hostile_lists_are_refused_as_a_whole(world: World, operating: Operating) -> None:
    world.libraries = {"default": [PANDAS | {"imports": ["a b"]}], "data": [NUMPY] * 101}
    world.pool()
    put_pool(world, "data")
    async with operating():
        await world.until(lambda: world.listed >= 2)
        world.execution("one")
        status = await world.finished("one")
    assert status["phase"] == "Succeeded"
    assert not world.pool_status().get("libraries")
    assert not status_of(world, "data").get("libraries")


async def test_the_next_leader_keeps_what_the_last_one_wrote(world: World, operating: Operating) -> None:
    world.libraries = {"data": [PANDAS]}
    world.pool()
    put_pool(world, "data")
    async with operating():
        await world.until(lambda: status_of(world, "data").get("libraries"))
        await world.sealed()
    world.libraries = {}
    async with operating() as operator:
        await world.until(lambda: operator.part.pools.get(("agents", "data")).libraries.current is not None)
        assert status_of(world, "data")["libraries"] == [PANDAS]


async def test_a_deleted_pool_is_no_hint(world: World, operating: Operating) -> None:
    world.libraries = {"data": [PANDAS]}
    world.pool()
    put_pool(world, "data")
    async with operating():
        await world.until(lambda: status_of(world, "data").get("libraries"))
        await world.until(lambda: world.pool_status().get("python"))
        world.remove(SBP, "data")
        world.execution("one", code="wait")
        await world.until(lambda: world.jobs)
        world.release.set()
        await world.finished("one")
    assert "libraries" not in world.jobs[0]


async def answer_404(request: web.Request, over: asyncio.Event) -> web.StreamResponse:
    return web.json_response({"error": "the path does not exist"}, status=404)
