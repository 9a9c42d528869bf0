"""Rollouts over REST: lists, views and assignments, which follow from spec and status alone."""

from typing import Any

import pytest
from tests.component.gateway.conftest import KEY, SECRETS, Gateway, key_entry, keys_secret, serving
from tests.component.gateway.test_refusals import assert_problem
from tests.support.api_server import FakeApiServer
from tests.support.until import until

from mcp_exec_api.constants import ROLLOUTS
from mcp_exec_api.wire.rollouts import Assignment, Rollout, RolloutList
from mcp_exec_common.kube.client import custom_resource_path
from mcp_exec_gateway.features.rollouts.service import Rollouts

XRO = custom_resource_path(ROLLOUTS, namespace="agents")
SPEC: dict[str, Any] = {
    "arms": [{"name": "direct", "mode": "direct"}, {"name": "code", "mode": "code", "pool": "long"}],
    "control": "direct",
    "stages": [
        {"name": "team", "users": ["ann"], "arm": "code", "manual": True},
        {"name": "all", "percent": 100, "durationSeconds": 600},
    ],
}


async def put(gateway: Gateway, *, name: str = "code-mode", stage: str | None = "all", **changes: Any) -> None:
    """Store a rollout, and wait until the gateway has read it."""
    phase = changes.pop("phase", "Progressing")
    status = {"phase": phase, "stage": stage} if stage else {"phase": phase}
    spec = SPEC | changes
    gateway.api.put(XRO, {"metadata": {"name": name, "uid": "uid-1"}, "spec": spec, "status": status})
    cache = gateway.dependencies.get(Rollouts).cache
    await until(lambda: any(each.name == name and each.status == status for each in cache.list_all("agents")))


async def assign(gateway: Gateway, unit: str, *, name: str = "code-mode", **fields: Any) -> Any:
    answer = await gateway.ask("POST", f"/v1/rollouts/{name}/assignments", json={"unit": unit, **fields})
    assert answer.status == 200, answer.text
    Assignment.model_validate_json(answer.text)
    return answer.json


async def test_a_named_user_gets_the_arm_of_the_stage_and_others_the_control_arm(gateway: Gateway) -> None:
    await put(gateway, stage="team")
    found = await assign(gateway, "conversation-1", user="ann")
    assert found == {
        "rollout": "code-mode",
        "unit": "conversation-1",
        "arm": "code",
        "mode": "code",
        "pool": "long",
        "enrolled": True,
        "stage": "team",
        "phase": "Progressing",
    }
    other = await assign(gateway, "conversation-1", user="bob")
    assert (other["arm"], other["mode"], other["enrolled"]) == ("direct", "direct", False)


async def test_every_gateway_gives_a_unit_the_same_arm(gateway: Gateway, api: FakeApiServer) -> None:
    await put(gateway)
    units = [f"unit-{number}" for number in range(20)]
    arms = [(await assign(gateway, unit))["arm"] for unit in units]
    assert set(arms) == {"direct", "code"}
    async with serving(api) as another:
        assert [(await assign(another, unit))["arm"] for unit in units] == arms


@pytest.mark.parametrize("changes", [{"killSwitch": True}, {"phase": "RolledBack"}, {"phase": "Aborted"}])
async def test_a_stopped_rollout_gives_all_units_the_control_arm(gateway: Gateway, changes: dict[str, Any]) -> None:
    await put(gateway, **changes)
    arms = {(await assign(gateway, f"unit-{number}"))["arm"] for number in range(10)}
    assert arms | {(await assign(gateway, "c", user="ann"))["arm"]} == {"direct"}


async def test_a_rollout_that_no_operator_has_seen_gives_the_control_arm(gateway: Gateway) -> None:
    await put(gateway, stage=None, phase="of a newer operator")
    assert (await assign(gateway, "c", user="ann"))["phase"] == "Pending"
    assert (await assign(gateway, "c", user="ann"))["arm"] == "direct"


async def test_a_rollout_is_shown_without_the_names_of_its_users(gateway: Gateway) -> None:
    await put(gateway)
    await put(gateway, name="another", stage=None, phase="Pending")
    answer = await gateway.ask("GET", "/v1/rollouts/code-mode")
    Rollout.model_validate_json(answer.text)
    view = answer.json
    assert (view["phase"], view["stage"], view["control"]) == ("Progressing", "all", "direct")
    assert view["arms"] == [arm | {"weight": 1} for arm in SPEC["arms"]]
    assert [(each["name"], each["users"], each["percent"]) for each in view["stages"]] == [
        ("team", 1, 0),
        ("all", 0, 100),
    ]
    assert "ann" not in answer.text
    listed = await gateway.ask("GET", "/v1/rollouts")
    RolloutList.model_validate_json(listed.text)
    assert [each["name"] for each in listed.json["items"]] == ["another", "code-mode"]
    assert [each["name"] for each in (await gateway.ask("GET", "/v1/rollouts?limit=1")).json["items"]] == ["another"]


async def test_a_spec_that_contradicts_itself_is_shown_and_assigns_nothing(gateway: Gateway) -> None:
    await put(gateway, control="absent")
    answer = await gateway.ask("POST", "/v1/rollouts/code-mode/assignments", json={"unit": "u"})
    assert_problem(answer, 409)
    assert "there is no arm 'absent'; arms: code, direct" in answer.json["detail"]
    shown = await gateway.ask("GET", "/v1/rollouts/code-mode")
    Rollout.model_validate_json(shown.text)
    assert "there is no arm 'absent'" in shown.json["problem"]


async def test_a_deleted_rollout_is_gone(gateway: Gateway, api: FakeApiServer) -> None:
    await put(gateway)
    api.remove(XRO, "code-mode")
    await until(lambda: not gateway.dependencies.get(Rollouts).cache.list_all("agents"))
    assert_problem(await gateway.ask("GET", "/v1/rollouts/code-mode"), 404)
    assert_problem(await gateway.ask("POST", "/v1/rollouts/code-mode/assignments", json={"unit": "u"}), 404)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "unit"),
        ({"unit": ""}, "unit"),
        ({"unit": "x" * 254}, "unit"),
        ({"unit": "two\nlines"}, "unit"),
        ({"unit": "u", "arm": "code"}, "arm"),
        ({"unit": 1}, "unit"),
    ],
)
async def test_a_caller_cannot_choose_the_arm_or_send_another_unit(
    gateway: Gateway, body: dict[str, Any], field: str
) -> None:
    await put(gateway)
    assert_problem(await gateway.ask("POST", "/v1/rollouts/code-mode/assignments", json=body), 422, field)


async def test_a_body_is_bounded(gateway: Gateway) -> None:
    await put(gateway)
    body = {"unit": "x" * 10_000}
    assert_problem(await gateway.ask("POST", "/v1/rollouts/code-mode/assignments", json=body), 413, "body")


async def test_a_key_names_only_the_users_that_it_may_name(gateway: Gateway) -> None:
    await put(gateway, stage="team")
    gateway.api.put(SECRETS, keys_secret(**{"team-a": key_entry(KEY, users=["u-*"])}))
    await until(lambda: (found := gateway.dependencies.keys.find(KEY)) and found.entry.limits.users)
    body = {"unit": "c", "user": "ann"}
    assert_problem(await gateway.ask("POST", "/v1/rollouts/code-mode/assignments", json=body), 403, "user")
