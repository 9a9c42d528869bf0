"""The whole operator, with kopf's watches, as `python3 -m mcp_exec_operator` runs it."""

import asyncio
import json
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.component.operator.conftest import Operator, settings
from tests.support.api_server import Fault
from tests.support.discovery import Discovered
from tests.support.nested import NESTED, nest_deeply
from tests.support.pace import paced
from tests.support.processes import write_kubeconfig
from tests.support.until import until
from tests.support.world import CEX, KEY_SECRET, NODES, SBP, SBS, SECRETS, SYSTEM, World

from mcp_exec_common.kube.client import KubeClient, resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_operator.cluster.leader_election import LeaderElector
from mcp_exec_operator.cluster.namespaces.membership import NamespaceMembership
from mcp_exec_operator.cluster.preflight import CannotStart, check_api
from mcp_exec_operator.core.resync import Resync
from mcp_exec_operator.process import OperatorProcess, run_operator
from mcp_exec_operator.settings import InitialApiKey, Settings


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    return tmp_path / "kubeconfig"


@pytest.fixture
def made(kubeconfig: Path) -> Settings:
    return settings(kubeconfig=kubeconfig, port=0, resync_seconds=60)


async def test_it_runs_what_its_watches_report_and_stops_at_sigterm(made: Settings, kubeconfig: Path) -> None:
    async with Discovered().up() as world:
        write_kubeconfig(kubeconfig, world.url)
        world.pool()
        running = asyncio.create_task(run_operator(made, sandbox_port=world.port))
        await world.warm(1)
        world.node = "node2"
        world.change_node("node1", cordoned=True)
        await world.until(lambda: [pod["spec"].get("nodeName") for pod in world.pods().values()] == ["node2"])
        world.execution("watched", "wait")
        await world.until(lambda: len(world.ran) == 1)
        world.merge(CEX, "watched", {"spec": {"cancelRequested": True}})
        world.session("watched")
        await world.until(lambda: world.session_status("watched").get("phase"))
        assert (await world.finished("watched"))["phase"] == "Cancelled"
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(paced(15)):
            await running
        written = {seen.path for way in ("PUT", "PATCH") for seen in world.asked(way, "") if seen.path.startswith(CEX)}
        assert written == {f"{CEX}/watched/status"}


async def test_its_end_waits_for_no_task_that_is_not_its_own_and_ends_none(made: Settings, kubeconfig: Path) -> None:
    async with Discovered().up() as world:
        write_kubeconfig(kubeconfig, world.url)
        running = asyncio.create_task(run_operator(made, sandbox_port=world.port))
        await world.until_asked(lambda: [seen for seen in world.seen if seen.query.get("watch") and seen.path == SBS])
        other = asyncio.create_task(asyncio.Event().wait())
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait({running, other}, return_when=asyncio.FIRST_COMPLETED)
        assert (running.done(), other.done()) == (True, False)
        await running
        other.cancel()


async def test_it_creates_the_keys_of_a_new_release_before_it_is_ready(made: Settings, kubeconfig: Path) -> None:
    async with Discovered().up() as world:
        write_kubeconfig(kubeconfig, world.url)
        world.remove(SECRETS, KEY_SECRET)
        world.put(resource_path("serviceaccounts", namespace=SYSTEM), {"metadata": {"name": "operator"}})
        changes = {
            "create_sandbox_key": True,
            "service_account": "operator",
            "api_keys_secret": "api-keys",
            "initial_api_key_secret": "initial-api-key",
            "initial_api_key": InitialApiKey(namespace="agents"),
        }
        running = asyncio.create_task(run_operator(made.model_copy(update=changes), sandbox_port=world.port))
        # the first list is a check of rights, the second one the first resync
        await world.until_asked(lambda: [seen for seen in world.seen if seen.path.endswith("/sandboxpools")][1:])
        assert set(world.collections[SECRETS]) == {KEY_SECRET, "api-keys", "initial-api-key"}
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(paced(15)):
            await running


async def test_it_refuses_to_start_without_the_crds(made: Settings, kubeconfig: Path) -> None:
    async with Discovered().up() as world:
        world.installed = False
        write_kubeconfig(kubeconfig, world.url)
        with pytest.raises(CannotStart, match=r"the CRDs of mcp-exec\.dev/v1beta1 are not installed"):
            await run_operator(made)


async def test_it_refuses_to_start_without_the_right_to_read_nodes(made: Settings, kubeconfig: Path) -> None:
    async with Discovered().up() as world:
        write_kubeconfig(kubeconfig, world.url)
        world.faults.append(Fault("GET", "/nodes", 403, message="nodes is forbidden"))
        with pytest.raises(CannotStart, match="MCP_EXEC_WATCH_NODES"):
            await run_operator(made)


async def test_it_works_without_nodes_if_configured(made: Settings, kubeconfig: Path) -> None:
    async with Discovered().up() as world:
        write_kubeconfig(kubeconfig, world.url)
        world.pool()
        running = asyncio.create_task(
            run_operator(made.model_copy(update={"watch_nodes": False}), sandbox_port=world.port)
        )
        await world.warm(1)
        world.execution("watched")
        assert (await world.finished("watched"))["phase"] == "Succeeded"
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(paced(15)):
            await running
        assert not [seen for seen in world.seen if seen.path == NODES]


async def test_a_namespace_that_was_deleted_does_not_stop_the_others(
    made: Settings, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NamespaceMembership, "CHECK_SECONDS", 0.5)
    async with Discovered().up() as world:
        write_kubeconfig(kubeconfig, world.url)
        world.forbidden.add("/namespaces/gone/")
        world.pool()
        changes = {"watch_nodes": False, "namespaces": ("gone", "agents")}
        running = asyncio.create_task(run_operator(made.model_copy(update=changes), sandbox_port=world.port))
        await world.warm(1)
        assert not [seen for seen in world.seen if seen.path.endswith("/gone/codeexecutions")]
        world.forbidden.clear()  # it is there again, with the rights in it
        await world.until_asked(lambda: world.asked("GET", "/gone/codeexecutions"))
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(paced(15)):
            await running


async def test_it_gives_up_on_an_api_server_that_stays_away(made: Settings, kubeconfig: Path) -> None:
    write_kubeconfig(kubeconfig, "http://127.0.0.1:9")
    async with KubeClient.connect(kubeconfig=made.kubeconfig) as kube:
        quick = KubeClient(session=kube.session, credentials=kube.credentials, retry_delays=(0.001,))
        with pytest.raises(CannotStart, match="the API server can't be used"):
            await check_api(quick, watch_nodes=True, wait_seconds=0)


@pytest.mark.parametrize(("version", "said"), [("v1.29.4-gke.1", "Kubernetes 1.29 is older than "), ("v1.30.0", "")])
async def test_it_logs_a_version_of_kubernetes_that_is_not_supported(
    made: Settings, kubeconfig: Path, caplog: pytest.LogCaptureFixture, version: str, said: str
) -> None:
    async with Discovered().up() as world:
        world.kubernetes = version
        write_kubeconfig(kubeconfig, world.url)
        async with KubeClient.connect(kubeconfig=made.kubeconfig) as kube:
            await check_api(kube, watch_nodes=True, wait_seconds=0)
    logged = [record.getMessage() for record in caplog.records if "Kubernetes" in record.getMessage()]
    assert [text.startswith(said) for text in logged] == [True] * bool(said)


async def test_health_and_metrics_are_served(
    world: World, operating: Callable[..., Any], contend: Callable[..., LeaderElector]
) -> None:
    world.pool()
    async with operating() as operator:
        await world.warm(1)
        elector = contend("pod-a")
        assert await elector.try_acquire_or_renew()
        process = process_of(operator, elector)
        async with (
            process.build_health_server().serving(0, host="127.0.0.1") as port,
            aiohttp.ClientSession() as session,
        ):
            answers = {}
            for path in ("healthz", "readyz", "metrics"):
                async with session.get(f"http://127.0.0.1:{port}/{path}") as response:
                    answers[path] = (response.status, await response.text())
        stuck = process.build_health_server(stuck_seconds=-1)
        world.held["sandboxpools"] = asyncio.Event()  # a resync that hangs
        operator.part.resync.request()
        await world.until_asked(lambda: world.holding)
        async with (
            stuck.serving(0, host="127.0.0.1") as port,
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}/healthz") as response,
        ):
            assert (response.status, (await response.json())["status"]) == (503, "failed")
            assert "no resync has made progress" in stuck.source.find_liveness_problem()
        world.held.pop("sandboxpools").set()
    assert [answers[path][0] for path in ("healthz", "readyz", "metrics")] == [200, 200, 200]
    assert 'mcp_exec_pool_pods{namespace="agents",pool="default",state="warm"} 1.0' in answers["metrics"][1]
    assert json.loads(answers["healthz"][1]) == {"status": "ok"}
    assert json.loads(answers["readyz"][1]) == {"status": "ready", "missing": [], "role": "leader"}


async def test_resyncs_that_fail_are_a_problem_and_those_that_take_long_are_none(
    world: World, operating: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(resync: Resync, *, first: bool = True) -> None:
        raise ApiError(code=500, reason="InternalError", message="broken")

    world.pool()
    async with operating() as operator:
        find_problem = partial(operator.manager.find_problem, stuck_seconds=60, failing_seconds=-1)
        assert find_problem() == ""
        with monkeypatch.context() as broken:
            broken.setattr(Resync, "resync", fail)
            operator.part.resync.request()
            await world.until(lambda: "resyncs have failed" in find_problem())
        operator.part.resync.request()
        await world.until(lambda: find_problem() == "")


async def test_resyncs_that_fail_in_one_namespace_are_no_reason_to_end_the_others(
    world: World, operating: Callable[..., Any]
) -> None:
    world.pool()
    world.faults += [Fault("GET", "/others/sandboxpools", 500)] * 1000
    async with operating(namespaces=("others", "agents")) as operator:
        await world.warm(1)
        others = operator.manager.namespaces["others"].resync
        await until(lambda: others.find_failure(failing_seconds=-1))
        assert operator.manager.find_problem(stuck_seconds=60, failing_seconds=-1) == ""
        assert operator.manager.find_unready() == ""


async def test_who_stands_by_is_healthy_and_ready_and_says_who_leads(
    world: World, operating: Callable[..., Any], contend: Callable[..., LeaderElector]
) -> None:
    leader, standby = contend("pod-a"), contend("pod-b")
    async with operating() as operator:
        health = process_of(operator, standby).build_health_server(stuck_seconds=-1)
        assert health.source.find_readiness_problem() == "the lease was not read yet"
        assert await leader.try_acquire_or_renew()
        assert not await standby.try_acquire_or_renew()
        async with health.serving(0, host="127.0.0.1") as port, aiohttp.ClientSession() as session:
            answers = []
            for path in ("healthz", "readyz", "metrics"):
                async with session.get(f"http://127.0.0.1:{port}/{path}") as response:
                    answers.append((response.status, await response.text()))
    assert [status for status, _ in answers] == [200, 200, 200]
    ready = {"status": "ready", "missing": [], "role": "standby", "leader": "pod-a_1"}
    assert [json.loads(text) for _, text in answers[:2]] == [{"status": "ok"}, ready]
    assert "mcp_exec_leader 0.0" in answers[2][1]


def process_of(operator: Operator, elector: LeaderElector) -> OperatorProcess:
    return OperatorProcess(
        settings=operator.settings,
        kube=elector.kube,
        manager=operator.manager,
        elector=elector,
    )


async def test_events_arrive_after_the_watches_expired(made: Settings, kubeconfig: Path) -> None:
    async with Discovered().up() as world:
        write_kubeconfig(kubeconfig, world.url)
        world.pool()
        running = asyncio.create_task(run_operator(made, sandbox_port=world.port))
        await world.warm(1)
        for name in ("first", "second"):
            lists = len(world.asked("GET", "/codeexecutions"))
            await world.expire_watches()
            await world.until_asked(lambda lists=lists: len(world.asked("GET", "/codeexecutions")) > lists)
            world.execution(name)
            assert (await world.finished(name))["phase"] == "Succeeded"
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(paced(15)):
            await running


@pytest.mark.parametrize("collection", [CEX, SBP, SBS])
async def test_an_object_that_is_nested_more_deeply_than_python_reads_stops_nobody_else(
    collection: str, made: Settings, kubeconfig: Path
) -> None:
    async with Discovered().up() as world:
        nest_deeply(world)
        write_kubeconfig(kubeconfig, world.url)
        world.pool()
        running = asyncio.create_task(run_operator(made, sandbox_port=world.port))
        await world.warm(1)
        for attempt in ("seen by a watch", "seen by a list"):
            world.put(collection, {"metadata": {"name": "deep", "generation": 1}, "spec": {"context": {"a": NESTED}}})
            world.execution("plain")
            assert (await world.finished("plain"))["phase"] == "Succeeded", attempt
            world.remove(CEX, "plain")
            await world.expire_watches()
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(paced(15)):
            await running


async def test_an_execution_whose_context_is_nested_too_deeply_is_rejected(made: Settings, kubeconfig: Path) -> None:
    async with Discovered().up() as world:
        nest_deeply(world)
        write_kubeconfig(kubeconfig, world.url)
        world.pool()
        running = asyncio.create_task(run_operator(made, sandbox_port=world.port))
        await world.warm(1)
        world.execution("deep", context={"a": NESTED})
        status = await world.finished("deep")
        assert (status["phase"], status["reason"]) == ("Failed", "Rejected")
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(paced(15)):
            await running
