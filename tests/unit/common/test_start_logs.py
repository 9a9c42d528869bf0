"""A healthy start logs no warning: what is not there yet is waited for, and is warned of if it does not come."""

import asyncio
import logging
from typing import Any, cast

import pytest

from mcp_exec_common.broker.client import BrokerClient, BrokerError
from mcp_exec_common.kube import reflector
from mcp_exec_common.kube.client import KubeClient
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.reflector import Reflector
from mcp_exec_operator.features.tools import wrappers
from mcp_exec_operator.features.tools.wrappers import BundleRefresher, NamespaceBundle, WrapperDistributor

_SECONDS = 30


class Absent:
    """An API server or broker that refuses some requests and then leaves the next without an answer."""

    def __init__(self, error: Exception, times: int) -> None:
        self.error = error
        self.left = times
        self.done = asyncio.Event()

    async def get(self, *_: Any, **__: Any) -> Any:
        if not self.left:
            self.done.set()
            await asyncio.Event().wait()
        self.left -= 1
        raise self.error

    scan = get


async def run_until_done(work: Any, absent: Absent) -> None:
    task = asyncio.create_task(work)
    async with asyncio.timeout(_SECONDS):
        await absent.done.wait()
    task.cancel()
    await asyncio.wait({task})


@pytest.mark.parametrize(("times", "levels"), [(5, {"INFO"}), (6, {"INFO", "WARNING"})])
async def test_a_definition_that_is_new_is_waited_for_without_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, times: int, levels: set[str]
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(reflector, "_pauses", lambda: iter([0.0] * 20))
    absent = Absent(ApiError(code=429, message="storage is (re)initializing"), times)
    await run_until_done(Reflector(kube=cast(KubeClient, absent), path="/x").run(), absent)
    assert {each.levelname for each in caplog.records} == levels


async def test_another_refusal_of_the_api_server_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(reflector, "_pauses", lambda: iter([0.0] * 20))
    absent = Absent(ApiError(code=500), 1)
    await run_until_done(Reflector(kube=cast(KubeClient, absent), path="/x").run(), absent)
    assert [each.levelname for each in caplog.records] == ["WARNING"]


@pytest.mark.parametrize(("start_seconds", "level"), [(60.0, "INFO"), (0.0, "WARNING")])
async def test_a_broker_that_is_not_ready_yet_is_waited_for_without_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, start_seconds: float, level: str
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(wrappers, "_START_SECONDS", start_seconds)
    monkeypatch.setattr(wrappers, "_FIRST_RETRY_SECONDS", 0.0)
    monkeypatch.setattr(wrappers, "_LAST_RETRY_SECONDS", 0.0)
    absent = Absent(BrokerError("no broker replica is ready"), 3)
    state = NamespaceBundle()
    state.observe({"metadata": {"name": "github"}}, deleted=False)
    distributor = cast(WrapperDistributor, type("Distributor", (), {"bundles": {("agents", "python"): state}})())
    refresher = BundleRefresher(
        broker=cast(BrokerClient, absent), distributor=distributor, refresh_seconds=60, warm_pods=lambda *_: ()
    )
    await run_until_done(refresher.run(("agents", "python")), absent)
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        (level, "no wrappers for namespace agents: no broker replica is ready")
    ]
