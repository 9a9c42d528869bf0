"""Executions, from the moment that they are seen to their end."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.api_server import Fault
from tests.support.world import CEX, EVENTS, NAMESPACE, PODS, POLICIES, SBP, World

from mcp_exec_operator.cluster.kube.api import OperatorApi
from mcp_exec_operator.core.executions import binder, lifecycle, run, writer
from mcp_exec_operator.core.executions.execution import Execution

Operating = Callable[..., Any]


async def test_a_short_warm_execution_costs_four_writes_and_says_how_it_went(
    world: World, operating: Operating
) -> None:
    world.pool()
    async with operating(resync_seconds=60) as operator:
        await world.warm(1)
        before = operator.writes()
        uid = world.execution("hello")
        status = await world.finished("hello")
        pod = status["podName"]
        await world.until(lambda: pod not in world.pods() and len(world.pods()) == 1)
        after = operator.writes()
    assert (status["phase"], status["start"], status["output"]["stdout"]) == ("Succeeded", "Warm", "1\n")
    assert {each["type"]: each["status"] for each in status["conditions"]} == {"Bound": "True", "Finished": "True"}
    assert status["createdAt"] <= status["boundAt"] <= status["startedAt"] <= status["finishedAt"]
    assert set(status["durations"]) == {"queued", "bind", "dispatch", "run", "collect", "total"}
    assert world.ran == [uid]
    spent = {what: count - before.get(what, 0) for what, count in after.items() if what != "pool-status"}
    assert {what: count for what, count in spent.items() if count} == {
        "bind": 1,
        "finish": 1,
        "pod-delete": 1,
        "pod-create": 1,
    }


async def test_what_an_execution_used_is_in_its_status_and_in_metrics(world: World, operating: Operating) -> None:
    end = {"kind": "end", "phase": "Succeeded", "runMs": 9.0, "cpuSeconds": 0.25, "peakMemoryBytes": 40_000_000}
    codes = {
        "honest": "say " + json.dumps([end]),
        # a sandbox may send what it likes
        "liar": "say " + json.dumps([end | {"cpuSeconds": 1e9, "peakMemoryBytes": 2**52}]),
        "broken": "raise UserError",
    }
    found = {}
    world.pool(resources={"limits": {"memory": "256Mi", "cpu": "2"}})
    async with operating() as operator:
        for name, code in codes.items():
            world.execution(name, code)
            found[name] = (await world.finished(name))["usage"]
        read = operator.metrics.registry.get_sample_value
        labels = {"namespace": "agents", "pool": "default"}
        await world.until(lambda: read("mcp_exec_execution_sandbox_seconds_count", labels) == 3)
        assert read("mcp_exec_execution_cpu_seconds_count", labels) == 2
        assert read("mcp_exec_execution_peak_memory_bytes_sum", labels) == 40_000_000 + 256 * 2**20
        assert read("mcp_exec_execution_code_bytes_sum", labels) == sum(map(len, codes.values()))
    assert (found["honest"]["cpuSeconds"], found["honest"]["peakMemoryBytes"]) == (0.25, 40_000_000)
    assert found["honest"]["codeBytes"] == len(codes["honest"])
    assert found["liar"]["peakMemoryBytes"] == 256 * 2**20
    assert found["liar"]["cpuSeconds"] <= (found["liar"]["sandboxSeconds"] + 1.1) * 2
    assert set(found["broken"]) == {"sandboxSeconds", "codeBytes", "tokens"}
    assert found["honest"]["tokens"]["code"] > 0


async def test_the_binding_is_written_before_any_code_is_handed_over(world: World, operating: Operating) -> None:
    world.pool()
    async with operating():
        await world.warm(1)
        del world.steps.done[:]
        world.execution("hello")
        await world.finished("hello")
    steps = world.steps.done
    assert steps.index("after PUT hello") < steps.index("before run")


async def test_a_pod_in_use_is_labelled_and_still_belongs_to_its_pool_and_its_policy(
    world: World, operating: Operating
) -> None:
    world.pool()
    async with operating():
        await world.warm(1)
        world.execution("long", "wait")
        busy = {"mcp-exec.dev/state": "busy", "mcp-exec.dev/execution": "long"}
        await world.until(lambda: any(busy.items() <= pod["metadata"]["labels"].items() for pod in _pods(world)))
        pod = world.pods()[world.status("long")["podName"]]
        pool, policy = world.collections[SBP]["default"], world.collections[POLICIES]["mcp-exec-base-default"]
        owners = [pool["metadata"]["uid"], policy["metadata"]["uid"]]
        assert [owner["uid"] for owner in pod["metadata"]["ownerReferences"]] == owners
        assert [owner["blockOwnerDeletion"] for owner in pod["metadata"]["ownerReferences"]] == [False, True]
        world.release.set()
        await world.finished("long")


async def test_nulls_inside_a_result_stay(world: World, operating: Operating) -> None:
    world.pool()
    async with operating():
        world.execution("nulls", 'value {"a": null, "b": [null, {"c": null}]}')
        status = await world.finished("nulls")
    assert status["output"]["result"] == {"a": None, "b": [None, {"c": None}]}


async def test_a_failure_keeps_the_error_of_the_code(world: World, operating: Operating) -> None:
    world.pool()
    async with operating():
        world.execution("bad", "raise UserError")
        status = await world.finished("bad")
    assert (status["phase"], status["reason"], status["error"]["type"]) == ("Failed", "UserError", "UserError")
    assert status["conditions"][-1]["reason"] == "UserError"


async def test_the_message_of_an_error_without_text_is_its_class(world: World, operating: Operating) -> None:
    world.pool()
    async with operating():
        world.execution("stopped", "interrupt me")
        status = await world.finished("stopped")
    assert status["conditions"][-1]["message"] == "KeyboardInterrupt"


async def test_more_executions_than_warm_pods_get_pods_of_their_own(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 2})
    async with operating():
        await world.warm(2)
        for number in range(6):
            world.execution(f"e{number}", "wait")
        await world.until(lambda: len(world.ran) == 6)
        world.release.set()
        statuses = [await world.finished(f"e{number}") for number in range(6)]
        await world.warm(2)
    assert sorted(status["start"] for status in statuses) == ["Cold"] * 4 + ["Warm"] * 2
    assert len({status["podName"] for status in statuses}) == 6
    assert len(world.ran) == len(set(world.ran)) == 6


async def test_a_pool_that_lets_wait_makes_no_pod_for_who_waits(world: World, operating: Operating) -> None:
    world.pool(onEmpty="Wait")
    async with operating():
        await world.warm(1)
        for number in range(3):
            world.execution(f"e{number}", "wait")
        await world.until(lambda: len(world.pods()) == 2)
        world.release.set()
        for number in range(3):
            assert (await world.finished(f"e{number}"))["phase"] == "Succeeded"
    assert len(world.asked("POST", "/pods")) <= 5


async def test_a_cancelled_run_ends_as_cancelled(world: World, operating: Operating) -> None:
    world.pool()
    async with operating():
        world.execution("long", "wait")
        await world.until(lambda: len(world.ran) == 1)
        world.merge(CEX, "long", {"spec": {"cancelRequested": True}})
        status = await world.finished("long")
    assert (status["phase"], status["reason"], status["output"]["stdout"]) == ("Cancelled", "Cancelled", "waiting\n")


async def test_an_execution_cancelled_while_it_waits_never_runs(world: World, operating: Operating) -> None:
    world.start_pods = False
    world.pool()
    async with operating():
        world.execution("late")
        await world.until(lambda: world.status("late").get("phase") == "Pending")
        world.merge(CEX, "late", {"spec": {"cancelRequested": True}})
        status = await world.finished("late")
    assert (status["phase"], status["reason"], world.ran) == ("Cancelled", "Cancelled", [])


async def test_an_execution_created_as_cancelled_is_never_bound(world: World, operating: Operating) -> None:
    world.pool()
    async with operating():
        world.execution("never", cancelRequested=True)
        status = await world.finished("never")
    assert (status["phase"], "podName" in status, world.ran) == ("Cancelled", False, [])


async def test_a_deleted_execution_takes_its_pod_with_it(world: World, operating: Operating) -> None:
    world.pool()
    async with operating():
        world.execution("gone", "wait")
        await world.until(lambda: len(world.ran) == 1)
        pod = world.status("gone")["podName"]
        world.remove(CEX, "gone")
        await world.until(lambda: pod not in world.pods())


async def test_an_execution_deleted_as_soon_as_it_is_seen_leaves_nothing(world: World, operating: Operating) -> None:
    world.pool()
    async with operating() as operator:
        await world.warm(1)
        meta = {"name": "brief", "namespace": "agents", "uid": "u1", "resourceVersion": "1"}
        body = {"metadata": {**meta, "creationTimestamp": "2026-11-21T20:00:00Z"}, "spec": {}}
        operator.manager.observe("execution", body, False)
        operator.manager.observe("execution", body, True)
        uid = world.execution("next")
        assert (await world.finished("next"))["phase"] == "Succeeded"
        await world.until(lambda: not operator.part.executions.list_pods())
    assert world.ran == [uid]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"code": ""}, "spec.code"),
        ({"timeoutSeconds": 0}, "spec.timeoutSeconds"),
        ({"timeoutSeconds": 60}, "spec.timeoutSeconds"),
        ({"limits": {"outputBytes": 1}}, "spec.limits.outputBytes"),
        ({"skill": "x"}, "spec.skill"),
    ],
)
async def test_a_spec_that_cannot_run_is_rejected_by_its_field(
    world: World, operating: Operating, spec: dict[str, Any], field: str
) -> None:
    world.pool(maxTimeoutSeconds=40)
    async with operating():
        await world.warm(1)
        world.execution("bad", **spec)
        status = await world.finished("bad")
    assert (status["phase"], status["reason"]) == ("Failed", "Rejected")
    assert field in status["error"]["message"]
    assert world.ran == []


async def test_a_changed_spec_of_one_that_waits_is_rejected(world: World, operating: Operating) -> None:
    world.start_pods = False
    world.pool()
    async with operating():
        world.execution("moving")
        await world.until(lambda: world.status("moving").get("phase") == "Pending")
        world.merge(CEX, "moving", {"metadata": {"generation": 2}, "spec": {"code": "print 2"}})
        status = await world.finished("moving")
    assert (status["phase"], status["reason"]) == ("Failed", "Rejected")
    assert "spec.code was changed after creation" in status["error"]["message"]


async def test_a_changed_spec_of_one_that_runs_is_told_and_ignored(world: World, operating: Operating) -> None:
    world.pool()
    async with operating():
        world.execution("moving", "wait")
        await world.until(lambda: len(world.ran) == 1)
        world.merge(CEX, "moving", {"metadata": {"generation": 2}, "spec": {"code": "print 2"}})
        await world.until(lambda: _condition(world, "moving", "SpecUnchanged"))
        world.release.set()
        status = await world.finished("moving")
        await world.until(lambda: [event["reason"] for event in _events(world)] == ["SpecChanged"])
    told = _condition(world, "moving", "SpecUnchanged")
    assert (status["phase"], status["output"]["stdout"]) == ("Succeeded", "waiting\n")
    assert (told["status"], told["reason"]) == ("False", "Changed")
    assert "spec.code" in told["message"]


async def test_a_changed_spec_of_one_that_ended_without_a_pod_is_told(world: World, operating: Operating) -> None:
    world.pool(maxTimeoutSeconds=40)
    async with operating():
        world.execution("refused", timeoutSeconds=60)
        await world.finished("refused")
        world.merge(CEX, "refused", {"metadata": {"generation": 2}, "spec": {"code": "print 2"}})
        await world.until(lambda: _condition(world, "refused", "SpecUnchanged"))
    assert (world.status("refused")["reason"], world.ran) == ("Rejected", [])


async def test_a_finished_execution_is_deleted_when_its_time_is_over(world: World, operating: Operating) -> None:
    world.pool()
    async with operating():
        world.execution("brief", ttlSecondsAfterFinished=0)
        await world.until(lambda: "brief" not in world.collections[CEX])
    assert len(world.ran) == 1


async def test_a_finished_execution_is_deleted_when_somebody_ends_its_time(world: World, operating: Operating) -> None:
    """As the gateway does for a caller that deletes it."""
    world.pool()
    async with operating():
        world.execution("unwanted")
        await world.finished("unwanted")
        world.merge(CEX, "unwanted", {"spec": {"ttlSecondsAfterFinished": 0}})
        await world.until(lambda: "unwanted" not in world.collections[CEX])
    assert _events(world) == []


async def test_a_stream_that_breaks_is_taken_up_where_it_broke(world: World, operating: Operating) -> None:
    world.pool()
    world.break_at = ("", 2)
    async with operating():
        world.execution("torn")
        status = await world.finished("torn")
    assert (status["phase"], status["output"]["stdout"]) == ("Succeeded", "1\n")
    assert len(world.ran) == 1


@pytest.mark.parametrize(
    ("pod_status", "reason"),
    [
        ({"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"reason": "OOMKilled"}}}]}, "OutOfMemory"),
        (
            {"phase": "Failed", "reason": "Evicted", "message": 'Usage of EmptyDir volume "tmp" exceeds the limit'},
            "StorageLimit",
        ),
        ({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}, "Evicted"),
        ({"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 1}}}]}, "SupervisorDied"),
    ],
)
async def test_a_pod_that_ends_tells_why_and_output_so_far_is_kept(
    world: World, operating: Operating, pod_status: dict[str, Any], reason: str
) -> None:
    world.pool()
    async with operating():
        world.execution("lost", "wait")
        await world.until(lambda: len(world.ran) == 1 and len(world.supervisor_of("lost").events) == 2)
        world.kill_pod(world.status("lost")["podName"], pod_status)
        status = await world.finished("lost")
    assert (status["phase"], status["reason"]) == ("Failed", reason)
    assert status["output"]["stdout"] == "waiting\n"


async def test_a_pod_deleted_under_a_run_ends_it_as_lost(world: World, operating: Operating) -> None:
    world.pool()
    async with operating():
        world.execution("lost", "wait")
        await world.until(lambda: len(world.ran) == 1)
        world.remove(PODS, world.status("lost")["podName"])
        status = await world.finished("lost")
    assert (status["phase"], status["reason"]) == ("Failed", "SandboxLost")


async def test_hostile_events_are_bounded(world: World, operating: Operating) -> None:
    world.pool()
    many = [{"kind": "stdout", "text": "<" * 60_000} for _ in range(4)]
    script = [*many, {"kind": "end", "phase": "Failed", "reason": "PoolNotFound", "runMs": 1e300}]
    async with operating():
        world.execution("loud", "say " + json.dumps(script), limits={"outputBytes": 262144})
        status = await world.finished("loud")
    assert (status["phase"], status["reason"]) == ("Failed", "UserError")
    assert status["output"]["truncated"] is True
    assert len(json.dumps(status)) < 900 * 1024
    assert status["durations"]["run"] < 60_000


async def test_notes_of_the_sandbox_are_in_the_status(world: World, operating: Operating) -> None:
    world.pool()
    notes = [
        {"kind": "ValueChanged", "path": "result.a", "message": "It is text."},
        {"kind": "FromALaterVersion", "path": "", "message": "x"},
    ]
    async with operating():
        world.execution("noted", "say " + json.dumps([{"kind": "end", "phase": "Succeeded", "notes": notes}]))
        world.execution("plain", "print 1")
        status = await world.finished("noted")
        plain = await world.finished("plain")
    # API servers before 1.24 reject empty texts
    assert status["notes"] == [notes[0], {"kind": "FromALaterVersion", "message": "x"}]
    assert "notes" not in plain


async def test_a_status_that_is_too_large_is_cut_and_written(world: World, operating: Operating) -> None:
    world.pool()
    async with operating():
        await world.warm(1)
        script = [{"kind": "stdout", "text": "x" * 200_000}, {"kind": "end", "phase": "Succeeded"}]
        world.execution("large", "say " + json.dumps(script), limits={"outputBytes": 262144})
        await world.until(lambda: world.status("large").get("phase") == "Running")
        world.faults.append(Fault("PUT", "/large/status", 413, message="limit is 3145728"))
        status = await world.finished("large")
    assert (status["phase"], status["output"]["truncated"]) == ("Succeeded", True)
    assert [note["kind"] for note in status["notes"]] == ["OutputCut"]
    assert len(status["output"]["stdout"]) < 70_000


async def test_a_stopped_operator_leaves_what_runs_to_the_next(world: World, operating: Operating) -> None:
    world.pool()
    async with operating():
        world.execution("long", "wait")
        await world.until(lambda: len(world.ran) == 1)
    assert world.status("long")["phase"] == "Running"
    world.release.set()
    async with operating():
        status = await world.finished("long")
    assert (status["phase"], status["output"]["stdout"], len(world.ran)) == ("Succeeded", "waiting\n", 1)


async def test_the_network_policy_stands_before_the_first_pod(world: World, operating: Operating) -> None:
    world.pool()
    async with operating():
        await world.warm(1)
    created = [seen.path for seen in world.seen if seen.method == "POST"]
    assert created[:4] == [POLICIES, POLICIES, POLICIES, PODS]


def _pods(world: World) -> list[dict[str, Any]]:
    return list(world.pods().values())


def _condition(world: World, name: str, kind: str) -> dict[str, Any]:
    return next((each for each in world.status(name).get("conditions") or () if each["type"] == kind), {})


async def test_waiting_executions_are_served_in_their_order(world: World, operating: Operating) -> None:
    world.start_pods = False
    world.pool(maxPods=1)
    async with operating():
        uids = []
        for number in range(3):
            uids.append(world.execution(f"e{number}"))
            await world.until(lambda number=number: world.status(f"e{number}").get("phase") == "Pending")
        world.start_pods = True
        await world.start_pod(next(iter(world.pods())))
        await asyncio.gather(*(world.finished(f"e{number}") for number in range(3)))
    assert world.ran == uids


async def test_an_execution_in_an_unknown_phase_is_left_alone_with_its_pod(
    world: World, operating: Operating, caplog: pytest.LogCaptureFixture
) -> None:
    world.pool()
    async with operating():
        for name in ("newer", "newest"):
            world.execution(name, "wait")
            await world.until(lambda name=name: world.status(name).get("phase") == "Running")
        await world.until(lambda: len(world.ran) == 2)
    pods = {name: world.status(name)["podName"] for name in ("newer", "newest")}
    before = {name: world.merge(CEX, name, {"status": {"phase": "Suspended"}}) for name in pods}
    async with operating() as operator:
        uid = world.execution("known")
        assert (await world.finished("known"))["phase"] == "Succeeded"
        assert operator.part.executions.list_pods() >= {("agents", pod) for pod in pods.values()}
    assert set(pods.values()) <= set(world.pods())
    assert world.ran[2:] == [uid]
    assert {name: world.collections[CEX][name] for name in pods} == before
    assert caplog.text.count("unknown phase 'Suspended'") == 1


async def test_a_final_status_that_is_rejected_is_written_later_without_its_details(
    world: World, operating: Operating, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "_FIRST_RETRY_SECONDS", 0.05)
    world.pool()
    async with operating() as operator:
        world.execution("odd", "wait")
        await world.until(lambda: len(world.ran) == 1)
        world.faults += [Fault("PUT", "/odd/status", 422, message="status.output is invalid")] * 2
        world.release.set()
        status = await world.finished("odd")
        writes = operator.writes()
        await world.until(lambda: status["podName"] not in world.pods())
    assert (status["phase"], "output" in status, len(world.ran)) == ("Succeeded", False, 1)
    assert "status.output is invalid" in _condition(world, "odd", "Finished")["message"]
    assert writes["finish"] == 3
    (event,) = [each for each in _events(world) if each["reason"] == "ReconcileFailed"]
    assert (event["type"], event["involvedObject"]["name"]) == ("Warning", "odd")
    assert "status.output is invalid" in event["message"]


async def test_a_rejection_that_is_rejected_is_written_later_without_its_findings(
    world: World, operating: Operating, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "_FIRST_RETRY_SECONDS", 0.05)
    world.pool(codeCheck={"mode": "Strict"})
    async with operating():
        await world.warm(1)
        world.faults += [Fault("PUT", "/odd/status", 422, message="status.codeFindings is invalid")] * 2
        world.execution("odd", "import os\nos.system('ls')\n")
        status = await world.finished("odd")
    assert (status["phase"], status["reason"], "codeFindings" in status) == ("Failed", "Rejected", False)


async def test_a_reconciliation_that_breaks_off_keeps_its_pod(
    world: World, operating: Operating, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def break_off(*_: Any) -> None:
        raise RuntimeError("unforeseen")

    world.pool()
    async with operating():
        world.execution("odd", "wait")
        await world.until(lambda: len(world.ran) == 1)
        monkeypatch.setattr(OperatorApi, "create_event", break_off)
        world.faults.append(Fault("PUT", "/odd/status", 422))
        world.release.set()
        status = await world.finished("odd")
    assert (status["phase"], len(world.ran)) == ("Succeeded", 1)


async def test_a_stopping_operator_leaves_what_another_has_bound(
    world: World, operating: Operating, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answer = asyncio.Event(), asyncio.Event()
    write = OperatorApi.replace_status

    async def write_late(*arguments: Any, **options: Any) -> Any:
        asked.set()
        await answer.wait()
        return await write(*arguments, **options)

    monkeypatch.setattr(OperatorApi, "replace_status", write_late)
    world.pool()
    async with operating() as operator:
        await world.warm(1)
        world.execution("contested")
        await asked.wait()
        stopping = asyncio.create_task(operator.stop())
        # cancelled as one of the first by the stop
        await _ended("ttl")
        bound = {"phase": "Running", "podName": "of-another", "specDigest": "sha256:1"}
        world.merge(CEX, "contested", {"status": bound})
        answer.set()
        await stopping
    assert not world.asked("GET", "/pods/of-another")
    assert world.ran == []


async def test_a_cancellation_after_the_stream_is_lost_does_no_harm(
    world: World, operating: Operating, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    delivered, observe, get_pod = asyncio.Event(), Execution.observe, OperatorApi.get_pod

    def observe_cancellation(execution: Execution, body: dict[str, Any]) -> None:
        observe(execution, body)
        if execution.seen.cancel_requested:
            delivered.set()

    async def get_pod_after_cancellation(*arguments: Any) -> Any:
        world.merge(CEX, "torn", {"spec": {"cancelRequested": True}})
        await delivered.wait()
        return await get_pod(*arguments)

    monkeypatch.setattr(Execution, "observe", observe_cancellation)
    monkeypatch.setattr(OperatorApi, "get_pod", get_pod_after_cancellation)
    monkeypatch.setattr(run, "_RECONNECT_DELAYS", (0.01,) * 3)
    world.pool()
    async with operating():
        world.execution("torn", "wait")
        await world.until(lambda: world.ran and len(world.supervisor_of("torn").events) == 2)
        world.silence(world.status("torn")["podName"])
        status = await world.finished("torn")
    assert (status["phase"], status["reason"]) == ("Failed", "StreamBroken")
    assert "failed: " not in caplog.text


async def _ended(task: str) -> None:
    """Return once no task of that name exists."""
    await asyncio.wait([each for each in asyncio.all_tasks() if each.get_name() == task])


async def test_status_writes_that_fail_for_long_are_reported_in_an_event(
    world: World, operating: Operating, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_LAST_DELAY", 0.1)
    world.pool()
    async with operating():
        await world.warm(1)
        world.faults += [Fault("PUT", "/slow/status", 500)] * 24
        world.execution("slow")
        assert (await world.finished("slow"))["phase"] == "Succeeded"
    (event,) = [each for each in _events(world) if each["reason"] == "StatusWriteDelayed"]
    assert event["involvedObject"]["name"] == "slow"


async def test_an_end_that_the_code_did_not_choose_is_an_event(world: World, operating: Operating) -> None:
    world.pool()
    async with operating() as operator:
        for name, reason in (("own", "UserError"), ("grown", "OutOfMemory"), ("fine", "")):
            world.execution(name, f"raise {reason}" if reason else "print 1")
            await world.finished(name)
        await world.until(lambda: _events(world))
        read = operator.metrics.registry.get_sample_value
        for number in range(25):
            world.execution(f"more-{number}", "raise OutOfMemory")
        for number in range(25):
            await world.finished(f"more-{number}")
        dropped = "mcp_exec_events_dropped_total"
        await world.until(lambda: len(_events(world)) >= 20 and read(dropped, {"reason": "OutOfMemory"}))
    events = _events(world)
    assert {event["reason"] for event in events} == {"OutOfMemory"}
    assert 20 <= len(events) < 26
    first = next(event for event in events if event["involvedObject"]["name"] == "grown")
    assert (first["type"], first["message"].startswith("Failed: ")) == ("Warning", True)
    assert "so it is" not in str(events)


async def test_a_long_wait_for_a_pod_is_an_event(
    world: World, operating: Operating, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binder, "_REPORT_SECONDS", 0.01)
    world.start_pods = False
    world.pool(maxPods=1)
    async with operating():
        world.execution("waiting")
        await world.until(lambda: _events(world))
        await world.until(lambda: world.status("waiting").get("reason"))
        reason = world.status("waiting")["reason"]
    (event,) = _events(world)
    assert (event["reason"], event["involvedObject"]["name"]) == (reason, "waiting")
    assert "position 1 of 1" in event["message"]


async def test_a_pool_that_does_not_exist_is_an_event_at_once_and_only_once(world: World, operating: Operating) -> None:
    async with operating():
        world.execution("lost", poolRef={"name": "nowhere"})
        await world.until(lambda: _events(world))
        world.execution("another", poolRef={"name": "nowhere"})
        await world.until(lambda: len(_events(world)) == 2)
    assert {event["reason"] for event in _events(world)} == {"PoolNotFound"}
    assert {event["involvedObject"]["name"] for event in _events(world)} == {"lost", "another"}
    assert all(event["message"].startswith("has no pod: there is no pool nowhere; ") for event in _events(world))


def _events(world: World) -> list[dict[str, Any]]:
    return list(world.collections.get(EVENTS, {}).values())


async def test_an_execution_that_is_deleted_after_a_resync_has_read_it_does_not_start(
    world: World, operating: Operating
) -> None:
    world.pool()
    async with operating() as operator:
        await world.warm(1)
        executions = operator.part.executions
        metadata = {"name": "late", "namespace": NAMESPACE, "uid": "late", "generation": 1, "resourceVersion": "1"}
        body = {"metadata": metadata, "spec": {"code": "print 1"}}
        record = executions.prepare(body)
        assert record is not None
        operator.manager.observe("execution", body, True)
        assert not executions.start(record)
        assert executions.prepare(body) is None
