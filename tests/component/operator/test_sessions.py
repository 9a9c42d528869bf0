"""Sessions: one pod for one owner, one execution at a time, and what ends it is said once."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import generate_latest
from tests.component.operator.conftest import late_list, run_until_killed
from tests.support.supervisor import FakeSupervisor
from tests.support.world import ACCOUNT, CEX, PODS, SBP, SBS, World

from mcp_exec_api.constants import ANNOTATION_CREATED_BY, LABEL_OWNER, LABEL_SESSION, LABEL_STATE
from mcp_exec_api.files import Owner

Operating = Callable[..., Any]
STEPS = [step if step % 8 == 4 else pytest.param(step, marks=pytest.mark.kills) for step in range(1, 50)]
"""Steps of the operator that it is killed at; most of them only by `make kills`."""


async def run(world: World, name: str, code: str = "print 1", *, session: str = "s", **spec: Any) -> Any:
    """Run an execution in a session and return its final status."""
    world.execution(name, code, **({"session": session} if session else {}), **spec)
    return await world.finished(name)


async def overrun(world: World, pod: str, *, survived: bool) -> Any:
    """Run an execution that is ended at its time limit, and return its final status."""
    ran = len(world.ran)
    world.execution("over", "wait", session="s")
    await world.until(lambda: len(world.ran) > ran)
    supervisor = supervisor_at(world, pod)
    supervisor.alive = survived
    supervisor.say("end", phase="TimedOut", reason="Timeout")
    return await world.finished("over")


async def phase(world: World, wanted: str, *, name: str = "s") -> Any:
    """Return the session's status once it has this phase."""
    await world.until(lambda: world.session_status(name).get("phase") == wanted, what=f"session {wanted}")
    return world.session_status(name)


def supervisor_at(world: World, pod: str) -> FakeSupervisor:
    return next(each for each in world.supervisors.values() if each.pod == pod)


async def test_executions_of_a_session_run_in_its_pod_which_serves_nobody_else(
    world: World, operating: Operating
) -> None:
    world.pool(warm={"min": 1})
    async with operating():
        await world.warm(1)
        first, second = await run(world, "first"), await run(world, "second", "value 7")
        world.execution("alone")
        alone = await world.finished("alone")
        await world.until(lambda: world.session_status("s").get("executions") == 2)
        status = await phase(world, "Ready")
        await world.warm(1)
    assert (first["start"], second["start"]) == ("Warm", "Session")
    assert first["podName"] == second["podName"] == status["podName"] != alone["podName"]
    pod, job = world.pods()[status["podName"]], supervisor_at(world, status["podName"]).job
    digest = Owner(namespace="agents", caller=f"k8s/{ACCOUNT}").digest
    labels = {LABEL_STATE: "busy", LABEL_SESSION: "s", LABEL_OWNER: digest}
    assert labels.items() <= pod["metadata"]["labels"].items()
    assert job is not None
    assert (job["owner"], job["session"]) == (digest, True)
    assert (status["owner"], status["ownerDigest"], status["podUid"]) == (
        f"k8s/{ACCOUNT}",
        digest,
        pod["metadata"]["uid"],
    )
    assert status["conditions"][0]["status"] == "True"


async def test_an_execution_in_a_session_takes_two_writes_of_the_operator(world: World, operating: Operating) -> None:
    world.pool()
    async with operating() as operator:
        await run(world, "first")
        await world.until(lambda: world.session_status("s").get("executions") == 1)
        before = operator.writes()
        for number in range(20):
            await run(world, f"next-{number}")
        after = operator.writes()
    counts = {what: count - before.get(what, 0) for what, count in after.items() if count != before.get(what)}
    assert counts.pop("session-status", 0) <= 2
    counts.pop("pool-status", 0)
    assert counts == {"bind": 20, "finish": 20}


async def test_every_owner_has_a_session_of_its_own_under_one_name(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 4})
    async with operating():
        owners = {"a": {"caller": "a"}, "b": {"caller": "b"}, "bc": {"caller": "b", "user": "u"}, "k": {}}
        statuses = {name: await run(world, name, **options) for name, options in owners.items()}
        pods = {status["podName"] for status in statuses.values()}
        named = {item["metadata"]["name"]: item for item in world.collections[SBS].values()}
        again = await run(world, "again", caller="b", user="u")
    assert len(pods) == 4
    made = Owner(namespace="agents", caller="b", user="u")
    others = [Owner(namespace="agents", caller=caller).qualify("s") for caller in ("", "a", "b")]
    assert sorted(named) == sorted([made.qualify("s"), *others])
    assert world.session_status(made.qualify("s"))["owner"] == "b, user u"
    assert again["podName"] == statuses["bc"]["podName"]
    assert named[made.qualify("s")]["spec"] == {"name": "s", "poolRef": {"name": "default"}, "user": "u"}


@pytest.mark.parametrize("forged", [False, True])
async def test_the_session_of_another_owner_is_refused(world: World, operating: Operating, forged: bool) -> None:
    world.pool(warm={"min": 2})
    name = Owner(namespace="agents", caller="a").qualify("s")
    async with operating():
        own = await run(world, "own", caller="a")
        # an execution of the namespace that names the object, perhaps with a caller that it can't prove
        options: Any = {"caller": "a", "forged": True} if forged else {}
        other = await run(world, "other", session=name, **options)
        status = world.session_status(name)
    assert own["phase"] == "Succeeded"
    assert (other["phase"], other["reason"]) == ("Failed", "Rejected")
    said = "nothing proves who created this execution" if forged else "of callers and users"
    assert said in other["error"]["message"]
    assert status["caller"] == "a"
    assert len(world.ran) == 1


async def test_nobody_takes_the_name_of_another_owners_session_before_it_exists(
    world: World, operating: Operating
) -> None:
    world.pool(warm={"min": 2})
    name = Owner(namespace="agents", caller="a").qualify("s")
    async with operating():
        squatter = await run(world, "squatter", session=name)
        own = await run(world, "own", caller="a")
    assert (squatter["reason"], own["phase"]) == ("Rejected", "Succeeded")
    assert "ends like the names of sessions of callers and users" in squatter["error"]["message"]


async def test_a_changed_context_reaches_no_session_of_the_caller(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 2})
    async with operating():
        own = await run(world, "own", caller="a")
    world.execution("later", caller="a", session="s", context={"path": "report.csv"})
    world.collections[CEX]["later"]["spec"]["context"] = {"path": "payroll.csv"}  # before an operator sees it
    async with operating():
        changed = await world.finished("later")
    assert (own["phase"], changed["reason"]) == ("Succeeded", "Rejected")
    assert len(world.ran) == 1


async def test_a_session_under_a_name_that_nobody_looks_for_says_so(world: World, operating: Operating) -> None:
    world.pool()
    world.session("wrong", user="u")
    async with operating():
        await world.until(lambda: world.session_status("wrong").get("reason") == "Invalid")
    message = world.session_status("wrong")["conditions"][0]["message"]
    assert Owner(namespace="agents", caller=f"k8s/{ACCOUNT}", user="u").qualify("NAME") in message


async def test_an_account_of_kubernetes_finds_no_variable_of_another_one(world: World, operating: Operating) -> None:
    """Whether the object existed before, or the first execution created it."""
    world.pool(warm={"min": 3})
    world.session("made", account="eve@example.com")
    async with operating():
        own = await run(world, "own")
        for number, name in enumerate(("s", "made")):
            other = await run(world, f"other-{number}", session=name, account="mallory@example.com")
            assert (other["phase"], other["reason"]) == ("Failed", "Rejected")
            assert f"the session {name} is another owner's" in other["error"]["message"]
        again, made = await run(world, "again"), await run(world, "made", session="made", account="eve@example.com")
    assert (again["podName"], made["phase"]) == (own["podName"], "Succeeded")
    assert world.collections[SBS]["s"]["metadata"]["annotations"][ANNOTATION_CREATED_BY] == ACCOUNT
    assert len(world.ran) == 3


@pytest.mark.parametrize("proven", [False, True])
async def test_nobody_has_no_session(world: World, operating: Operating, proven: bool) -> None:
    """Without policies anybody could write the account; with them an object from before has none."""
    world.pool(warm={"min": 2})
    account = "" if proven else ACCOUNT
    world.session("kept", account=account)
    async with operating(accounts_proven=proven):
        refused = [await run(world, name, session=name, account=account) for name in ("kept", "fresh")]
        plain = await run(world, "plain", session="", account=account)
        await world.until(lambda: world.session_status("kept").get("reason") == "Invalid")
    for each in refused:
        assert (each["phase"], each["reason"]) == ("Failed", "Rejected")
        assert "nothing proves who created this execution" in each["error"]["message"]
    assert plain["phase"] == "Succeeded"
    assert list(world.collections[SBS]) == ["kept"]
    assert "nobody may use it" in world.session_status("kept")["conditions"][0]["message"]


async def test_one_execution_runs_at_a_time_and_the_queue_is_bounded(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 2})
    world.session("s", maxQueued=2)
    async with operating():
        world.execution("running", "wait", session="s")
        await world.until(lambda: world.ran)
        for name in ("one", "two"):
            world.execution(name, session="s")
            await world.until(lambda: world.status("one").get("queue"))
        await world.until(lambda: (world.status("two").get("queue") or {}).get("position") == 2)
        excess = await run(world, "excess")
        busy = await phase(world, "Busy")
        waiting = world.status("one")
        world.release.set()
        ends = [await world.finished(name) for name in ("running", "one", "two")]
        await world.until(lambda: world.session_status("s").get("queued") == 0)
    assert (waiting["phase"], waiting["reason"], waiting["queue"]["position"]) == ("Pending", "SessionBusy", 1)
    assert (excess["reason"], excess["phase"]) == ("SessionBusy", "Failed")
    assert "2 executions wait for their turn, of 2 that may" in excess["error"]["message"]
    assert busy["podName"] == ends[0]["podName"]
    assert {end["podName"] for end in ends} == {busy["podName"]}
    assert sorted(ends, key=lambda end: end["boundAt"]) == ends


async def test_an_execution_that_is_cancelled_while_it_waits_leaves_the_queue(
    world: World, operating: Operating
) -> None:
    world.pool()
    async with operating():
        world.execution("running", "wait", session="s")
        await world.until(lambda: world.ran)
        world.execution("waiting", session="s")
        world.execution("last", session="s")
        world.merge(CEX, "waiting", {"spec": {"cancelRequested": True}, "metadata": {"generation": 2}})
        cancelled = await world.finished("waiting")
        world.release.set()
        last = await world.finished("last")
    assert (cancelled["phase"], last["phase"]) == ("Cancelled", "Succeeded")


@pytest.mark.parametrize("restarted", [False, True])
async def test_the_loss_of_a_pod_is_said_once_and_then_the_session_starts_afresh(
    world: World, operating: Operating, restarted: bool
) -> None:
    world.pool(warm={"min": 2})
    async with operating():
        first = await run(world, "first")
        await phase(world, "Ready")
        if not restarted:
            world.remove(PODS, first["podName"])
            lost = await phase(world, "Lost")
            said, afresh = await run(world, "said"), await run(world, "afresh")
    if restarted:
        world.remove(PODS, first["podName"])
        async with operating():
            lost = await phase(world, "Lost")
        async with operating():
            said = await run(world, "said")
        async with operating():
            afresh = await run(world, "afresh")
    assert (lost["reason"], lost.get("podName")) == ("PodLost", None)
    assert first["podName"] in lost["conditions"][0]["message"]
    assert (said["phase"], said["reason"]) == ("Failed", "SessionLost")
    assert "starts afresh" in said["error"]["message"]
    assert (afresh["phase"], afresh["start"] != "Session") == ("Succeeded", True)
    assert len(world.ran) == 2
    assert world.session_status("s")["podName"] == afresh["podName"] != first["podName"]


async def test_a_pod_that_ends_during_a_run_is_lost_to_it_and_to_the_next_one(
    world: World, operating: Operating
) -> None:
    world.pool(warm={"min": 2})
    async with operating():
        await run(world, "first")
        world.execution("second", "wait", session="s")
        await world.until(lambda: len(world.ran) == 2)
        pod = world.status("second")["podName"]
        killed = {"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
        world.kill_pod(pod, {"phase": "Failed", "containerStatuses": [killed]})
        second = await world.finished("second")
        said, afresh = await run(world, "said"), await run(world, "afresh")
        await world.until(lambda: pod not in world.pods())
    assert (second["reason"], said["reason"], afresh["phase"]) == ("OutOfMemory", "SessionLost", "Succeeded")
    assert "OutOfMemory" in said["error"]["message"]


@pytest.mark.parametrize("survived", [False, True])
async def test_a_run_beyond_its_time_costs_the_session_only_if_the_interpreter_did_not_survive(
    world: World, operating: Operating, survived: bool
) -> None:
    world.pool(warm={"min": 2})
    async with operating():
        first = await run(world, "first")
        over = await overrun(world, first["podName"], survived=survived)
        following = await run(world, "next")
        last = await run(world, "last")
    assert over["phase"] == "TimedOut"
    if survived:
        assert [each["podName"] for each in (over, following, last)] == [first["podName"]] * 3
    else:
        assert (following["reason"], last["phase"]) == ("SessionLost", "Succeeded")
        assert last["podName"] != first["podName"]
        assert first["podName"] not in world.pods()


async def test_an_interpreter_that_ended_after_its_run_fails_the_next_execution_alone(
    world: World, operating: Operating
) -> None:
    world.pool(warm={"min": 2})
    async with operating():
        first = await run(world, "first")
        supervisor_at(world, first["podName"]).alive = False
        said, afresh = await run(world, "said"), await run(world, "afresh")
    assert (said["reason"], afresh["phase"], len(world.ran)) == ("SessionLost", "Succeeded", 2)


async def test_a_session_and_its_run_outlive_an_operator(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 2})
    async with operating():
        first = await run(world, "first")
        world.execution("running", "wait", session="s")
        await world.until(lambda: len(world.ran) == 2)
        world.execution("waiting", session="s")
    async with operating():
        await world.warm(2)
        assert len(world.ran) == 2
        world.release.set()
        ends = [await world.finished(name) for name in ("running", "waiting")]
    async with operating():
        after = await run(world, "after")
    assert {end["podName"] for end in (first, *ends, after)} == {first["podName"]}
    assert [end["phase"] for end in (*ends, after)] == ["Succeeded"] * 3
    assert len(world.ran) == len(set(world.ran)) == 4


async def test_an_execution_that_is_deleted_while_it_runs_is_ended_and_the_session_goes_on(
    world: World, operating: Operating
) -> None:
    world.pool(warm={"min": 2})
    async with operating():
        first = await run(world, "first")
        world.execution("deleted", "wait", session="s")
        await world.until(lambda: len(world.ran) == 2)
        world.remove(CEX, "deleted")
        after = await run(world, "after")
    assert (after["phase"], after["podName"]) == ("Succeeded", first["podName"])
    assert supervisor_at(world, first["podName"]).state == "idle"


async def test_a_reset_ends_the_run_and_starts_afresh_without_a_word(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 2})
    world.session("s")
    async with operating():
        first = await run(world, "first")
        world.execution("running", "wait", session="s")
        await world.until(lambda: len(world.ran) == 2)
        world.execution("waiting", session="s")
        world.merge(SBS, "s", {"spec": {"resets": 1}})
        running, waiting = await world.finished("running"), await world.finished("waiting")
        await world.until(lambda: world.session_status("s").get("resets") == 1)
        await world.until(lambda: first["podName"] not in world.pods())
    assert (running["phase"], "reset" in running["conditions"][-1]["message"]) == ("Cancelled", True)
    assert (waiting["phase"], waiting["podName"] != first["podName"]) == ("Succeeded", True)


@pytest.mark.parametrize("busy", [False, True])
async def test_a_deleted_session_ends_with_its_run_and_its_pod(world: World, operating: Operating, busy: bool) -> None:
    world.pool(warm={"min": 1})
    async with operating():
        first = await run(world, "first")
        if busy:
            world.execution("running", "wait", session="s")
            await world.until(lambda: len(world.ran) == 2)
        world.remove(SBS, "s")
        if busy:
            assert (await world.finished("running"))["phase"] == "Cancelled"
        await world.until(lambda: first["podName"] not in world.pods())
        afresh = await run(world, "afresh")
    assert (afresh["phase"], "s" in world.collections[SBS]) == ("Succeeded", True)


async def test_the_pod_of_a_session_that_was_deleted_meanwhile_is_deleted(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 1})
    async with operating():
        first = await run(world, "first")
        await world.sealed()
    world.remove(SBS, "s")
    async with operating():
        await world.until(lambda: first["podName"] not in world.pods())
        await world.warm(1)


@pytest.mark.parametrize(("field", "reason"), [("idleTimeoutSeconds", "Idle"), ("maxAgeSeconds", "TooOld")])
async def test_a_session_ends_at_its_limits_and_the_next_execution_is_told(
    world: World, operating: Operating, field: str, reason: str
) -> None:
    world.pool(warm={"min": 1})
    world.session("s", **{field: 1})
    async with operating():
        first = await run(world, "first")
        ended = await phase(world, "Ended")
        await world.until(lambda: first["podName"] not in world.pods())
        said, afresh = await run(world, "said"), await run(world, "afresh")
    assert ended["reason"] == reason
    assert (said["reason"], afresh["phase"]) == ("SessionLost", "Succeeded")


async def test_a_session_ends_with_its_pool(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 1})
    async with operating():
        await run(world, "first")
        world.remove(SBP, "default")
        lost = await phase(world, "Lost")
    assert lost["reason"] == "PoolDeleted"


async def test_a_session_keeps_its_pod_when_the_pools_template_changes(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 1})
    async with operating():
        first = await run(world, "first")
        world.merge(SBP, "default", {"metadata": {"generation": 2}, "spec": {"image": "newer"}})
        await world.until(lambda: world.condition("Current").get("status") == "True")
        second = await run(world, "second")
    assert second["podName"] == first["podName"]


@pytest.mark.parametrize("limit", ["max_sessions_per_owner", "max_sessions_per_namespace"])
async def test_more_sessions_than_allowed_are_refused_until_one_ends(
    world: World, operating: Operating, limit: str
) -> None:
    world.pool(warm={"min": 2})
    async with operating(**{limit: 1}):
        await run(world, "first")
        excess = await run(world, "excess", session="t")
        world.remove(SBS, "s")
        await world.until(lambda: "s" not in world.collections[SBS])
        allowed = await run(world, "allowed", session="t")
    assert (excess["reason"], allowed["phase"]) == ("SessionLimit", "Succeeded")
    assert len(world.asked("POST", "/sandboxsessions")) == 2


async def test_an_execution_of_another_pool_than_its_sessions_is_refused(world: World, operating: Operating) -> None:
    world.pool()
    world.session("s", poolRef={"name": "another"})
    async with operating():
        status = await run(world, "mismatch")
    assert status["reason"] == "Rejected"
    assert "default is not the pool of the session s, another" in status["error"]["message"]


async def test_a_session_gets_no_pod_of_another_namespace(world: World, operating: Operating) -> None:
    world.pool()
    world.put(SBP.replace("agents", "other"), {"metadata": {"name": "theirs", "generation": 1}, "spec": {"image": "i"}})
    world.session("s", poolRef={"name": "theirs"})
    async with operating(bind_timeout_seconds=0.1):
        status = await run(world, "first", poolRef={"name": "theirs"})
    assert status["reason"] == "PoolNotFound"


async def test_a_session_that_is_deleted_while_it_gets_its_pod_is_created_again(
    world: World, operating: Operating
) -> None:
    world.pool(warm={"min": 0})
    world.start_pods = False
    async with operating():
        world.execution("first", session="s")
        await world.until(lambda: world.pods() and "s" in world.collections.get(SBS, {}))
        world.remove(SBS, "s")
        await world.start_pod(next(iter(world.pods())))
        first = await world.finished("first")
        status = await phase(world, "Ready")
    assert (first["phase"], status["podName"]) == ("Succeeded", first["podName"])


async def test_sessions_that_get_no_pod_leave_a_bounded_number_of_objects(world: World, operating: Operating) -> None:
    async with operating(bind_timeout_seconds=0.01, max_sessions_per_owner=2):
        for number in range(6):
            status = await run(world, f"run-{number}", session=f"s-{number}")
            assert status["reason"] == "PoolNotFound"
        await world.until(lambda: len(world.collections[SBS]) == 2)


async def test_the_memory_of_a_session_is_shown_and_sessions_are_counted(world: World, operating: Operating) -> None:
    world.pool()
    async with operating() as operator:
        first = await run(world, "first")
        supervisor_at(world, first["podName"]).memory_bytes = 48 * 2**20
        await overrun(world, first["podName"], survived=True)
        await world.until(lambda: world.session_status("s").get("memoryBytes") == 48 * 2**20)
        text = generate_latest(operator.metrics.registry).decode()
    assert world.session_status("s")["memory"] == "48Mi"
    assert 'mcp_exec_sessions{namespace="agents",phase="Ready"} 1.0' in text


@pytest.mark.parametrize("step", STEPS)
async def test_a_kill_at_any_step_keeps_the_session_and_runs_nothing_twice(
    world: World, operating: Operating, step: int
) -> None:
    world.pool(warm={"min": 1})
    names = ("first", "second", "third")
    uids = [world.execution(name, session="s") for name in names]

    def is_over() -> bool:
        return all(world.status(name).get("finishedAt") for name in names)

    await run_until_killed(world, step, is_over)
    async with operating():
        statuses = [await world.finished(name) for name in names]
        status = await phase(world, "Ready")
        await world.warm(1)
        await world.until(lambda: len(world.pods()) == 2)
    assert [each["phase"] for each in statuses] == ["Succeeded"] * 3
    assert sorted(world.ran) == sorted(uids)
    assert {each["podName"] for each in statuses} == {status["podName"]}


@pytest.mark.parametrize("step", STEPS[:25])
async def test_a_loss_is_said_exactly_once_across_kills(world: World, operating: Operating, step: int) -> None:
    world.pool(warm={"min": 1})
    async with operating():
        first = await run(world, "first")
        await world.sealed()
    world.remove(PODS, first["podName"])
    names = ("second", "third", "fourth")
    for name in names:
        world.execution(name, session="s")

    def is_over() -> bool:
        return all(world.status(name).get("finishedAt") for name in names)

    await run_until_killed(world, step, is_over)
    async with operating():
        statuses = [await world.finished(name) for name in names]
    assert sorted(each.get("reason", "") for each in statuses) == ["", "", "SessionLost"]


async def test_two_executions_at_once_create_one_session(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 2})
    async with operating():
        await world.warm(2)
        for name in ("one", "two", "three"):
            world.execution(name, session="s")
        statuses = await asyncio.gather(*(world.finished(name) for name in ("one", "two", "three")))
    assert len({status["podName"] for status in statuses}) == 1
    assert len(world.asked("POST", "/sandboxsessions")) == 1


async def test_a_list_that_is_older_than_a_sessions_deletion_does_not_bring_it_back(
    world: World, operating: Operating
) -> None:
    world.pool(warm={"min": 2})
    async with operating() as operator:
        first = await run(world, "first")
        await world.until(lambda: world.session_status("s").get("executions") == 1)
        async with late_list(operator, "sandboxsessions"):
            world.remove(SBS, "s")
            await world.until(lambda: first["podName"] not in world.pods())
            other = await run(world, "other")
            await world.until(lambda: world.session_status("s").get("executions") == 1)
        again = await run(world, "again")
    assert (other["phase"], again["phase"], again["start"]) == ("Succeeded", "Succeeded", "Session")
    assert first["podName"] != other["podName"] == again["podName"]


async def test_an_idle_session_keeps_its_pod_and_those_that_wait_for_it_are_told(
    world: World, operating: Operating
) -> None:
    world.pool(maxPods=1)
    async with operating():
        first = await run(world, "first")
        world.execution("waiting")
        await world.until(lambda: "idle session" in str(world.status("waiting").get("conditions")))
        waiting = world.status("waiting")
        await world.until(lambda: "idle session" in world.condition("Ready")["message"])
        status, ready = world.pool_status(), world.condition("Ready")
        again = await run(world, "again")
        world.remove(SBS, "s")
        assert (await world.finished("waiting"))["phase"] == "Succeeded"
        await world.until(lambda: not world.pool_status().get("sessions"))
    assert waiting["reason"] == ready["reason"] == "PoolAtCapacity"
    text = "the pool has 1 of at most 1 pods; 1 pod is kept for an idle session until "
    assert text in str(waiting["conditions"])
    assert (status["sessions"], status["busy"]) == (1, 1)
    assert (again["start"], again["podName"]) == ("Session", first["podName"])
