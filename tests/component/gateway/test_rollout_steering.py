"""Rollouts steered over REST: who may, what is written, and what holds at once."""

from typing import Any

import pytest
from tests.component.gateway.conftest import BOSS, KEY, Gateway
from tests.component.gateway.test_refusals import assert_problem
from tests.component.gateway.test_rollouts import SPEC, XRO, assign, put

PATH = "/v1/rollouts/code-mode"


@pytest.fixture
def gateway(gateway_with_approver: Gateway) -> Gateway:
    return gateway_with_approver


def spec_of(gateway: Gateway) -> Any:
    return gateway.api.collections[XRO]["code-mode"]["spec"]


async def steer(gateway: Gateway, action: str, key: str = BOSS, **body: str) -> Any:
    return await gateway.ask("POST", f"{PATH}/{action}", json=body, key=key)


async def arms(gateway: Gateway) -> set[str]:
    return {(await assign(gateway, f"id-{each}"))["arm"] for each in range(20)}


async def test_an_approver_promotes_to_the_next_stage_and_to_the_end(gateway: Gateway) -> None:
    await put(gateway, stage="team")
    answer = await steer(gateway, "promote")
    assert (answer.status, spec_of(gateway)["promotedTo"]) == (202, "all")
    await put(gateway, stage="all")
    assert (await steer(gateway, "promote")).status == 202
    assert spec_of(gateway)["promotedTo"] == "Completed"


async def test_a_rollout_that_has_not_begun_is_promoted_to_a_stage_by_name(gateway: Gateway) -> None:
    await put(gateway, stage=None, phase="Pending")
    assert (await steer(gateway, "promote", to="all")).status == 202
    assert spec_of(gateway)["promotedTo"] == "all"
    refused = assert_problem(await steer(gateway, "promote", to="Completed"), 422, "to")
    assert refused.detail == "to: 'Completed' is no later stage; allowed: team, all"


async def test_nobody_promotes_backwards(gateway: Gateway) -> None:
    await put(gateway, stage="all")
    for stage in ("team", "all", "other"):
        problem = assert_problem(await steer(gateway, "promote", to=stage), 422, "to")
        assert problem.detail == f"to: {stage!r} is no later stage; allowed: Completed"
    assert "promotedTo" not in spec_of(gateway)


async def test_an_approver_pauses_and_resumes(gateway: Gateway) -> None:
    await put(gateway)
    assert (await steer(gateway, "pause")).json["paused"] is True
    assert spec_of(gateway)["paused"] is True
    assert (await steer(gateway, "resume")).json["paused"] is False


async def test_an_abort_holds_from_the_next_assignment_on(gateway: Gateway) -> None:
    await put(gateway)
    assert await arms(gateway) == {"direct", "code"}
    answer = await steer(gateway, "abort")
    assert (answer.status, answer.json["killSwitch"]) == (202, True)
    assert await arms(gateway) == {"direct"}


@pytest.mark.parametrize("action", ["promote", "pause", "resume", "abort"])
async def test_who_is_no_approver_steers_nothing(gateway: Gateway, action: str) -> None:
    await put(gateway)
    problem = assert_problem(await steer(gateway, action, KEY), 403)
    assert problem.detail.startswith("the API key team-a is not an approver's: ")
    assert spec_of(gateway) == SPEC


@pytest.mark.parametrize("action", ["promote", "pause", "resume", "abort"])
async def test_a_rollout_that_has_ended_is_not_steered(gateway: Gateway, action: str) -> None:
    await put(gateway, phase="RolledBack")
    problem = assert_problem(await steer(gateway, action), 409)
    assert problem.detail == "rollout code-mode has ended: it is RolledBack; create another one"


@pytest.mark.parametrize("action", ["promote", "pause", "resume", "abort"])
async def test_a_name_that_no_rollout_has_is_not_found(gateway: Gateway, action: str) -> None:
    for name in ("other", "A%20B", "x" * 300):
        assert_problem(await gateway.ask("POST", f"/v1/rollouts/{name}/{action}", json={}, key=BOSS), 404)


async def test_a_rollout_that_contradicts_itself_can_be_aborted_and_not_promoted(gateway: Gateway) -> None:
    await put(gateway, control="nothing")
    assert "there is no arm 'nothing'" in assert_problem(await steer(gateway, "promote"), 409).detail
    assert (await steer(gateway, "abort")).status == 202


async def test_a_cluster_without_the_definition_serves_everything_else(gateway: Gateway) -> None:
    gateway.dependencies.namespaces.reflectors["rollouts in agents"].synced.clear()
    for method, path, body in (
        ("GET", "/v1/rollouts", None),
        ("GET", PATH, None),
        ("POST", f"{PATH}/assignments", {"unit": "u"}),
        ("POST", f"{PATH}/abort", {}),
    ):
        problem = assert_problem(await gateway.ask(method, path, json=body, key=BOSS), 503)
        assert "the cluster lacks the definition executionrollouts.mcp-exec.dev" in problem.detail
    assert (await gateway.ask("GET", "/readyz", key=None)).status == 200
    assert (await gateway.ask("GET", "/v1/executions")).status == 200
