"""API keys that end: an Event about their Secret, once a key and day, whichever replica writes it."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from tests.component.gateway.conftest import KEY, SECRETS, Gateway, Object, key_entry, keys_secret, serving
from tests.support.api_server import FakeApiServer, Fault
from tests.support.until import until

from mcp_exec_api.meta import now
from mcp_exec_common.kube.client import resource_path
from mcp_exec_gateway.core.auth.key_warnings import MAX_EVENTS, KeyWarnings

EVENTS = resource_path("events", namespace="mcp-exec-system")


@pytest.fixture
async def gateway(api: FakeApiServer) -> AsyncIterator[Gateway]:
    async with serving(api) as made:
        yield made


def ending(days: float, key: str = KEY) -> Object:
    return key_entry(key) | {"expiresAt": (now() + timedelta(days=days)).isoformat()}


def events(api: FakeApiServer) -> list[Object]:
    return list(api.collections.get(EVENTS, {}).values())


def put_keys(api: FakeApiServer, **days: float) -> None:
    """Replace all keys by some that end in so many days."""
    api.put(SECRETS, keys_secret(**{name: ending(each, f"mcpx_{name:k<43}") for name, each in days.items()}))


async def test_a_key_that_ends_within_two_weeks_has_an_event_about_its_secret(
    api: FakeApiServer, gateway: Gateway
) -> None:
    put_keys(api, soon=13.5, later=14.5)
    (event,) = await until(lambda: events(api))
    uid = api.collections[SECRETS]["api-keys"]["metadata"]["uid"]
    about = {"apiVersion": "v1", "kind": "Secret", "namespace": "mcp-exec-system", "name": "api-keys", "uid": uid}
    assert event["involvedObject"] == about
    assert (event["type"], event["reason"], event["source"]) == (
        "Warning",
        "ApiKeyEnds",
        {"component": "mcp-exec-gateway"},
    )
    assert event["message"].startswith("API key soon of namespace agents ends at ")
    assert "kubectl mcp-exec keys rotate soon --release-namespace mcp-exec-system --secret api-keys" in event["message"]


@pytest.mark.parametrize(("days", "said"), [(-0.5, "ended at"), (-13.5, "ended at"), (-14.5, ""), (0.5, "ends at")])
async def test_a_key_that_has_ended_is_reported_for_two_weeks(
    api: FakeApiServer, gateway: Gateway, days: float, said: str
) -> None:
    put_keys(api, first=days, second=1)
    found = await until(lambda: len(events(api)) == 1 + bool(said) and events(api))
    assert [said in event["message"] for event in found if "key first " in event["message"]] == [True] * bool(said)


async def test_replicas_and_changes_of_the_secret_write_one_event_a_key_and_day(api: FakeApiServer) -> None:
    async with serving(api) as one, serving(api) as other:
        at = now()
        for gateway in (one, other):
            gateway.dependencies.keys.clock = lambda: at
        put_keys(api, soon=3)
        await until(lambda: events(api))
        put_keys(api, soon=3, too=4)
        await until(lambda: len(events(api)) == 2)
        at += timedelta(days=1)
        put_keys(api, soon=3, too=20)
        await until(lambda: len(events(api)) == 3)
    names = [event["message"].split()[2] for event in events(api)]
    assert sorted(names) == ["soon", "soon", "too"]


async def test_the_former_key_of_a_rotation_has_no_event(api: FakeApiServer, gateway: Gateway) -> None:
    former = {"sha256": "f" * 64, "expiresAt": (now() + timedelta(hours=1)).isoformat()}
    api.put(SECRETS, keys_secret(rotated=ending(90) | {"former": former}, other=ending(1, "mcpx_" + "x" * 43)))
    (event,) = await until(lambda: events(api))
    assert "API key other " in event["message"]


async def test_many_keys_have_a_bounded_number_of_events_and_those_that_end_first_have_one(
    api: FakeApiServer, gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    days = {f"k{number}": 1 + number / 100 for number in range(MAX_EVENTS + 10)}
    put_keys(api, **days, ended=-1)
    await until(lambda: "11 more API keys" in caplog.text)
    assert {event["message"].split()[2] for event in events(api)} == set(list(days)[:MAX_EVENTS])


async def test_an_event_that_is_refused_is_logged_and_written_later(
    api: FakeApiServer, gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    api.faults.append(Fault("POST", "/events", 403))
    put_keys(api, soon=3)
    await until(lambda: "no Event about API key soon" in caplog.text)
    put_keys(api, soon=2)
    assert len(await until(lambda: events(api))) == 1


async def test_a_key_that_comes_near_its_end_is_reported_without_a_change(api: FakeApiServer, gateway: Gateway) -> None:
    put_keys(api, soon=20)
    dependencies = gateway.dependencies
    await until(lambda: dependencies.keys.find("mcpx_" + "soon".ljust(43, "k")))
    dependencies.keys.clock = lambda: now() + timedelta(days=10)
    warnings = KeyWarnings(
        kube=dependencies.kube,
        namespace="mcp-exec-system",
        secret="api-keys",
        keys=dependencies.keys,
        check_seconds=0.01,
    )
    task = asyncio.create_task(warnings.run())
    try:
        assert len(await until(lambda: events(api))) == 1
    finally:
        task.cancel()
