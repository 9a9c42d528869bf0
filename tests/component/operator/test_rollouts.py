"""Rollouts at the operator: stages, pauses, warm pods, guards, and what a new operator continues."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.component.operator.conftest import Operator
from tests.support.api_server import Fault
from tests.support.until import until
from tests.support.world import EVENTS, NAMESPACE, PODS, SBP, World

from mcp_exec_api.constants import LABEL_POOL, ROLLOUTS
from mcp_exec_api.execution_rollout import ExecutionRolloutSpec
from mcp_exec_api.rollout_status import ArmMeasures, GuardMetric
from mcp_exec_common.kube.client import custom_resource_path
from mcp_exec_common.rollouts.guards import share_interval
from mcp_exec_common.rollouts.progress import RolloutMeasures
from mcp_exec_operator.features.rollouts import controller
from mcp_exec_operator.features.rollouts.feature import RolloutsFeature
from mcp_exec_operator.features.rollouts.measures import RecordsUnreadable, RolloutIdentity

Operating = Callable[..., Any]
Object = dict[str, Any]
XRO = custom_resource_path(ROLLOUTS, namespace=NAMESPACE)
ARMS = [{"name": "direct", "mode": "direct"}, {"name": "code", "mode": "code", "pool": "default"}]
TEAM = {"name": "team", "users": ["u-1"], "manual": True}
SHORT = {"name": "some", "percent": 10, "durationSeconds": 1}
EVERYBODY = {"name": "all", "percent": 100, "manual": True, "warmPods": 3}
GUARD = {"name": "errors", "metric": "errorRate", "threshold": 0.2, "minSamples": 5}


@pytest.fixture(autouse=True)
def frequent_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "_TICK_SECONDS", 0.1)


class Records:
    """Records where the arm `code` fails as often as a test says."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.problem = ""

    async def read(self, rollout: RolloutIdentity, spec: ExecutionRolloutSpec) -> RolloutMeasures:
        if self.problem:
            raise RecordsUnreadable(self.problem) if rollout.name == "code-mode" else ValueError(self.problem)
        found = share_interval(self.failures, 50)
        assert found is not None
        arms = [ArmMeasures(name="code", exposed=40, outcomes=50, failures=self.failures, error_rate=found.value)]
        return RolloutMeasures(guards={"errors": {"code": {GuardMetric.ERROR_RATE: found}}}, arms=arms)


def put(world: World, *stages: Object, name: str = "code-mode", status: Object | None = None, **changes: Any) -> None:
    spec = {"arms": ARMS, "control": "direct", "stages": list(stages)} | changes
    metadata = {"name": name, "namespace": NAMESPACE, "generation": 1}
    world.put(XRO, {"metadata": metadata, "spec": spec, "status": status or {}})


def steer(world: World, **spec: Any) -> None:
    generation = world.collections[XRO]["code-mode"]["metadata"]["generation"] + 1
    world.merge(XRO, "code-mode", {"metadata": {"generation": generation}, "spec": spec})


def status(world: World) -> Object:
    return world.collections[XRO]["code-mode"].get("status") or {}


def condition(world: World, kind: str) -> Object:
    return next((each for each in status(world).get("conditions", ()) if each["type"] == kind), {})


async def reached(world: World, **fields: Any) -> None:
    await world.until(lambda: {**status(world), **fields} == status(world), what=str(fields))


def events(world: World) -> list[tuple[str, str]]:
    found = world.collections.get(EVENTS, {}).values()
    return [(each["type"], each["reason"]) for each in found if each["involvedObject"]["kind"] == "ExecutionRollout"]


def measure(operator: Operator, name: str, **labels: str) -> float | None:
    own = {"namespace": NAMESPACE, "rollout": "code-mode"} | labels
    return operator.metrics.registry.get_sample_value(f"mcp_exec_rollout_{name}", own)


async def test_a_stage_begins_once_its_pool_has_the_warm_pods(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 1})
    async with operating():
        await world.warm(1)
        world.start_pods = False
        put(world, EVERYBODY)
        await reached(world, phase="Warming", message="stage all waits for warm pods: default has 1 of 3")
        await world.until(lambda: len(world.pods()) == 3)
        assert "stage" not in status(world)
        await world.until(lambda: world.condition("Scaled")["reason"] == "Rollout")
        for name, pod in list(world.pods().items()):
            if not pod["spec"].get("nodeName"):
                await world.start_pod(name)
        await reached(world, phase="Progressing", stage="all", exposure="100 %", armNames="direct, code")
        await world.until(lambda: events(world) == [("Normal", "Warming"), ("Normal", "StageBegan")])
        assert condition(world, "PoolsWarm")["status"] == "True"
        assert condition(world, "Ready")["status"] == "True"


async def test_a_stage_that_is_over_is_followed_by_the_next_one(world: World, operating: Operating) -> None:
    async with operating() as operator:
        put(world, SHORT, TEAM)
        await reached(world, phase="Progressing", stage="team", exposure="1 user, 10 %")
        await until(lambda: measure(operator, "stage") == 2)
        assert measure(operator, "phase", phase="Progressing") == 1
        assert measure(operator, "arm_share_ratio", arm="code") == 0.05
        assert measure(operator, "arm_share_ratio", arm="direct") == pytest.approx(0.95)
        await world.until(lambda: events(world) == [("Normal", "StageBegan")] * 2)
        world.remove(XRO, "code-mode")
        await until(lambda: measure(operator, "stage") is None)


async def test_a_rollout_is_paused_resumed_promoted_and_ended(world: World, operating: Operating) -> None:
    async with operating():
        put(world, TEAM, {"name": "all", "percent": 100, "manual": True}, completeWith="code")
        await reached(world, stage="team", phase="Progressing")
        steer(world, paused=True)
        await reached(world, phase="Paused", message="spec.paused is set", observedGeneration=2)
        steer(world, promotedTo="all")
        await reached(world, phase="Paused", observedGeneration=3)
        steer(world, paused=False)
        await reached(world, phase="Progressing", stage="all")
        steer(world, promotedTo="Completed")
        await reached(world, phase="Completed", exposure="all: code")
        steer(world, killSwitch=True)
        await reached(world, phase="Aborted", exposure="0 %")
        await world.until(lambda: events(world)[-1] == ("Warning", "Aborted"))


async def test_an_end_gives_the_warm_pods_back(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 1})
    async with operating():
        put(world, EVERYBODY)
        await reached(world, stage="all")
        assert world.pool_status()["desired"] == 3
        steer(world, killSwitch=True)
        await world.until(lambda: world.pool_status().get("desired") == len(world.pods()) == 1)


async def test_a_new_operator_continues_the_stage_with_its_warm_pods(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 1})
    async with operating():
        put(world, EVERYBODY)
        await reached(world, stage="all")
        await world.sealed()
        before, pods = status(world), set(world.pods())
    async with operating() as operator:
        await until(lambda: measure(operator, "stage") == 1)
        await world.warm(3)
        assert (status(world), set(world.pods())) == (before, pods)
        assert "rollout-status" not in operator.writes()


async def test_a_write_that_fails_is_made_later_and_once(world: World, operating: Operating) -> None:
    path = "rollouts/code-mode/status"
    world.faults += [Fault("PUT", path, 409), Fault("PUT", path, 500), Fault("PUT", path, "lost after")]
    async with operating():
        put(world, TEAM)
        await reached(world, stage="team", phase="Progressing")
        steer(world, paused=True)
        await reached(world, phase="Paused")
    assert not world.faults


async def test_a_status_that_is_refused_is_written_again_after_growing_delays(
    world: World, operating: Operating
) -> None:
    world.faults += [Fault("PUT", "rollouts/code-mode/status", 422)] * 2
    async with operating() as operator:
        put(world, TEAM)
        await until(lambda: not world.faults)
        assert operator.writes()["rollout-status"] == 2
        await reached(world, stage="team", phase="Progressing")
        assert operator.writes()["rollout-status"] == 3
        texts = [*status(world).values(), *(value for each in status(world)["conditions"] for value in each.values())]
        assert "" not in texts


async def test_a_rollout_that_is_deleted_is_forgotten_although_no_watch_reports_it(
    world: World, operating: Operating
) -> None:
    async with operating() as operator:
        put(world, TEAM)
        await reached(world, stage="team")
        controller = operator.feature(RolloutsFeature).controller
        await until(lambda: events(world) == [("Normal", "StageBegan")])
        late = world.collections[XRO]["code-mode"]
        world.remove(XRO, "code-mode")
        await until(lambda: measure(operator, "stage") is None)
        controller.observe({**late, "status": {}}, deleted=False)
        await until(lambda: measure(operator, "stage") is None)


async def test_a_guard_rolls_back_and_its_measures_are_shown(world: World, operating: Operating) -> None:
    records = Records(failures=0)
    async with operating() as operator:
        operator.feature(RolloutsFeature).controller.measures.reader = records
        put(world, TEAM, guards=[GUARD])
        await reached(world, stage="team", guard="OK")
        assert condition(world, "Measured")["status"] == "True"
        await until(lambda: measure(operator, "arm_exposed_units", arm="code") == 40)
        await until(lambda: measure(operator, "guard_violated", guard="errors") == 0)
        records.failures = 45
        operator.feature(RolloutsFeature).controller.measures.forget(
            world.collections[XRO]["code-mode"]["metadata"]["uid"]
        )
        await reached(world, phase="RolledBack", exposure="0 %", guard="errorRate Violated")
        await world.until(lambda: events(world)[-1] == ("Warning", "RolledBack"))
        await until(lambda: measure(operator, "arm_error_ratio", arm="code") == 0.9)
        assert "guard errors: errorRate of arm code is 0.9 in 50 samples" in status(world)["message"]


async def test_without_records_a_guard_holds_the_stage(world: World, operating: Operating) -> None:
    async with operating() as operator:
        put(world, SHORT, TEAM, guards=[GUARD])
        held = "the stage lasts longer: guard errors: arm code has 0 samples; 5 are needed"
        await reached(world, stage="some", guard="errorRate Unknown", message=held)
        assert condition(world, "Measured")["status"] == "False"
        records = Records(failures=45)
        records.problem = "the broker does not answer"
        operator.feature(RolloutsFeature).controller.measures.reader = records
        await world.until(lambda: condition(world, "Measured")["message"] == records.problem)
        assert status(world)["stage"] == "some"


async def test_a_reader_that_breaks_stops_no_rollout(world: World, operating: Operating) -> None:
    async with operating() as operator:
        records = Records(failures=0)
        records.problem = "broken"
        operator.feature(RolloutsFeature).controller.measures.reader = records
        put(world, TEAM, name="broken")
        put(world, TEAM)
        await reached(world, stage="team")
        await world.until(lambda: (world.collections[XRO]["broken"].get("status") or {}).get("stage") == "team")
        found = world.collections[XRO]["broken"]["status"]["conditions"]
        messages = [each.get("message") for each in found if each["type"] == "Measured"]
        assert messages == ["the outcomes were not read: ValueError"]


async def test_a_spec_that_contradicts_itself_is_reported_and_stays(world: World, operating: Operating) -> None:
    async with operating():
        put(world, TEAM, control="other")
        await world.until(lambda: condition(world, "Ready").get("reason") == "Invalid")
        assert "there is no arm 'other'; arms: code, direct" in status(world)["message"]
        assert "stage" not in status(world)
        steer(world, control="direct")
        await reached(world, stage="team", phase="Progressing")


async def test_a_status_of_a_newer_operator_is_left_as_it_is(world: World, operating: Operating) -> None:
    async with operating() as operator:
        newer = {"phase": "Progressing", "stage": "team", "later": True}
        put(world, TEAM, name="newer", status=newer)
        put(world, TEAM)
        await reached(world, stage="team")
        assert world.collections[XRO]["newer"]["status"] == newer
        assert operator.writes()["rollout-status"] == 1


POOLS = [{"name": "stable", "pool": "default"}, {"name": "next", "pool": "next"}]
STARTS = {"name": "starts", "metric": "startFailures", "threshold": 2, "compareTo": "Control"}
FAULTS = {"name": "faults", "metric": "faultRate", "threshold": 0.1, "compareTo": "Control", "minSamples": 10}


def put_pools(world: World, **spec: Any) -> None:
    """Two pools, and a rollout between them that gives half of the units the second one."""
    for name in ("default", "next"):
        given = {"image": name, "warm": {"min": 2}} | spec
        world.put(SBP, {"metadata": {"name": name, "generation": 1}, "spec": given})
    everybody = {"name": "all", "percent": 100, "manual": True}
    put(world, everybody, arms=POOLS, control="stable", guards=[STARTS, FAULTS])


async def fail_pods(world: World, fail: Callable[[str], Any], done: Callable[[], bool]) -> None:
    """Start the pods of `default`, and let those of `next` fail, until that is enough."""
    seen: set[str] = set()
    while not done():
        await world.until(lambda: done() or world.pods().keys() - seen)
        for name in sorted(world.pods().keys() - seen):
            seen.add(name)
            if world.pods()[name]["metadata"]["labels"][LABEL_POOL] == "next":
                fail(name)
            else:
                await world.start_pod(name)


@pytest.mark.parametrize("problem", ["ended", "no image"])
async def test_a_pool_whose_pods_do_not_start_is_left_by_a_rollback_which_a_new_operator_keeps(
    world: World, operating: Operating, problem: str
) -> None:
    states = {
        "ended": {"terminated": {"exitCode": 1, "reason": "Error"}},
        "no image": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}},
    }
    phase = "Failed" if problem == "ended" else "Pending"

    def fail(name: str) -> None:
        world.merge(PODS, name, {"status": {"phase": phase, "containerStatuses": [{"state": states[problem]}]}})

    world.start_pods = False
    put_pools(world, warm={"min": 3})
    async with operating():
        await fail_pods(world, fail, lambda: status(world).get("phase") == "RolledBack")
        assert "3 consecutive pods of the pool of arm next did not become ready" in status(world)["message"]
        assert status(world)["guard"] == "startFailures Violated"
        await world.until(lambda: ("Warning", "RolledBack") in events(world))
    async with operating():
        await world.warm(3)
        assert status(world)["phase"] == "RolledBack"


async def test_a_pool_whose_runs_end_by_its_fault_is_left_by_a_rollback(world: World, operating: Operating) -> None:
    put_pools(world)
    async with operating():
        await reached(world, stage="all", phase="Progressing")
        for pool, code in (("default", "raise UserError"), ("next", "raise RunnerDied")):
            for index in range(10):
                world.execution(f"{pool}-{index}", code, poolRef={"name": pool})
        for pool in ("default", "next"):
            for index in range(10):
                await world.finished(f"{pool}-{index}")
        await reached(world, phase="RolledBack", guard="faultRate Violated")
        assert "faultRate of arm next is 1 in 10 samples" in status(world)["message"]


async def test_pools_that_fail_alike_are_no_reason_for_a_rollback(world: World, operating: Operating) -> None:
    put_pools(world)
    async with operating():
        for pool in ("default", "next"):
            for index in range(10):
                world.execution(f"{pool}-{index}", "raise RunnerDied", poolRef={"name": pool})
                await world.finished(f"{pool}-{index}")
        await world.until(lambda: [each["state"] for each in status(world).get("guards", ())] == ["OK", "OK"])
        assert status(world)["phase"] == "Progressing"
