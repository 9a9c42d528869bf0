"""`python3 -m mcp_exec_operator`: builds everything, runs it, and stops it in order."""

import asyncio
import logging
import os
import signal
import sys
from contextlib import AsyncExitStack
from importlib import import_module
from typing import Final

import uvloop

from mcp_exec_api.constants import SUPERVISOR_PORT
from mcp_exec_common.kube.client import KubeClient
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.process.file_limit import raise_file_limit
from mcp_exec_common.process.logging import configure_logging
from mcp_exec_common.process.settings import SettingsError
from mcp_exec_common.supervisor.client import SupervisorClient
from mcp_exec_operator.health import Health
from mcp_exec_operator.kube.leader_election import LeaderElector, LeaseLost
from mcp_exec_operator.manager import Service
from mcp_exec_operator.metrics import Metrics
from mcp_exec_operator.preflight import CannotStart, check_api
from mcp_exec_operator.settings import Settings

log = logging.getLogger("mcp_exec_operator")

_STUCK_SECONDS: Final = 180.0
_LOST_SECONDS: Final = 0.5
"""How long after the loss of the lease the process lives at most; what it did is broken off at the loss itself."""


async def operate(settings: Settings, *, sandbox_port: int = SUPERVISOR_PORT) -> None:
    """Runs the operator until it is told to stop by SIGTERM or SIGINT. Raises CannotStart and LeaseLost."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    key = settings.sandbox_key_file.read_bytes().strip()
    metrics = Metrics.create()
    async with (
        KubeClient.connect(kubeconfig=settings.kubeconfig) as kube,
        SupervisorClient.connect(key=key, port=sandbox_port) as sandboxes,
    ):
        _on_signals(loop, stop)
        service = Service.create(settings=settings, kube=kube, sandboxes=sandboxes, metrics=metrics)
        elector = LeaderElector.create(settings=settings, kube=kube, metrics=metrics)
        health = Health(elector=elector, sweep=service.sweep, metrics=metrics, stuck_seconds=_STUCK_SECONDS)
        async with health.serving(settings.port):
            await check_api(
                kube,
                namespaces=settings.namespaces,
                watch_nodes=settings.watch_nodes,
                wait_seconds=settings.api_wait_seconds,
            )
            if await _elected(elector, stop):
                await _lead(elector, service, kube, settings=settings, stop=stop)


async def _elected(elector: LeaderElector, stop: asyncio.Event) -> bool:
    """Waits until this operator leads. False where it is told to stop before."""

    async def elect() -> None:
        if not await elector.try_acquire_or_renew():
            await _warm_up()
            await elector.wait_until_leader()

    loop = asyncio.get_running_loop()
    electing, stopping = loop.create_task(elect(), name="election"), loop.create_task(stop.wait(), name="stopping")
    await asyncio.wait({electing, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if electing.done() and not stop.is_set():
        electing.result()
        return True
    electing.cancel()
    await asyncio.gather(electing, return_exceptions=True)
    await elector.release()  # it may just have been taken
    return False


async def _lead(
    elector: LeaderElector, service: Service, kube: KubeClient, *, settings: Settings, stop: asyncio.Event
) -> None:
    """Works until `stop` is set, and gives the lease up once all writes are over. Raises LeaseLost."""
    async with AsyncExitStack() as stack:
        lease = await stack.enter_async_context(elector.holding())
        work = asyncio.get_running_loop().create_task(
            _work(service, kube, settings=settings, stop=stop, working=stack), name="work"
        )
        await asyncio.wait({lease, work}, return_when=asyncio.FIRST_COMPLETED)
        if lease.done() and not lease.cancelled() and not work.done():
            service.abandon()
            log.error("nothing is begun any more: %s", lease.exception())
            work.cancel()
            await asyncio.wait({work}, timeout=_LOST_SECONDS)
            lease.result()
        await work


async def _work(
    service: Service, kube: KubeClient, *, settings: Settings, stop: asyncio.Event, working: AsyncExitStack
) -> None:
    await working.enter_async_context(service.running())
    await _watch(service, kube, settings=settings, stop=stop, working=working)


async def _warm_up() -> None:
    """Imports kopf, which takes longer than a sweep."""
    await asyncio.to_thread(import_module, "mcp_exec_operator.kube.watches")


async def _watch(
    service: Service, kube: KubeClient, *, settings: Settings, stop: asyncio.Event, working: AsyncExitStack
) -> None:
    """Feeds the service with what the watches tell until `stop` is set. `working` ends the service and the lease.

    kopf cancels all tasks that were made after it when it ends, so the service ends before kopf does.
    """
    await _warm_up()  # what waits is served meanwhile
    from mcp_exec_operator.kube.watches import follow_pods

    async with follow_pods(kube=kube, namespaces=settings.namespaces, on_pod=service.on_pod):
        await _watch_by_kopf(service, kube, settings=settings, stop=stop, working=working)


async def _watch_by_kopf(
    service: Service, kube: KubeClient, *, settings: Settings, stop: asyncio.Event, working: AsyncExitStack
) -> None:
    from mcp_exec_operator.kube.watches import build_registry, watch

    loop, ready, watches_stop = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    registry = build_registry(
        credentials=kube.credentials,
        on_execution=service.on_execution,
        on_pool=service.on_pool,
        on_node=service.on_node if settings.watch_nodes else None,
    )
    watching = loop.create_task(
        watch(registry=registry, namespaces=settings.namespaces, ready=ready, stop=watches_stop), name="watching"
    )
    stopping = loop.create_task(stop.wait(), name="stopping")
    opened = loop.create_task(ready.wait(), name="watching ready")
    try:
        await asyncio.wait({watching, stopping, opened}, return_when=asyncio.FIRST_COMPLETED)
        _on_signals(loop, stop)  # kopf has set its own meanwhile
        log.info("the operator works", extra={"namespaces": settings.namespaces})
        await asyncio.wait({watching, stopping}, return_when=asyncio.FIRST_COMPLETED)
        log.info("the operator stops")
        ended_early = not stop.is_set()
    finally:
        await working.aclose()
        watches_stop.set()
        stopping.cancel()
        opened.cancel()
        await watching
    if ended_early:
        raise CannotStart("the watches have ended")


def _on_signals(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)


def main() -> None:
    """The command. Exits with 1, and one line that says why, where it can't start."""
    try:
        settings = Settings.from_environment()
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)
    configure_logging(settings.log_level)
    raise_file_limit()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            try:
                runner.run(operate(settings))
            except LeaseLost as error:
                log.error("the operator ends: %s", error)
                os._exit(1)  # at once: what is left in the loop waits for nobody
    except (CannotStart, ApiError, OSError) as error:
        log.error("the operator ends: %s", error)
        sys.exit(1)


if __name__ == "__main__":
    main()
