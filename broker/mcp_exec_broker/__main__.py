"""The broker process: `python -m mcp_exec_broker`."""

import asyncio
import logging
import signal
import sys
from collections.abc import Sequence
from time import monotonic
from typing import Final

import uvloop

from mcp_exec_api.constants import MAX_TIMEOUT_SECONDS
from mcp_exec_broker.core.calls.audit import write_to_stdout
from mcp_exec_broker.core.calls.call import shorten_switch_interval
from mcp_exec_broker.features import FEATURES
from mcp_exec_broker.manager import BrokerManager
from mcp_exec_broker.settings import Settings
from mcp_exec_common.kube.client import KubeClient
from mcp_exec_common.process.http_server import HttpServer, build_server
from mcp_exec_common.process.settings import SettingsError
from mcp_exec_common.process.setup import configure_logging, exempt_started_objects, raise_file_limit

log = logging.getLogger("mcp_exec_broker")

_APPROVAL_CONNECTIONS: Final = 16
"""Connections for reading executions whose calls wait for an approval. However many wait, no other request does."""
_KEEP_ALIVE_SECONDS: Final = MAX_TIMEOUT_SECONDS + 30
"""Longer than any execution, whose connection stays open between calls."""
_DRAIN_CHECK_SECONDS: Final = 0.25
_SEND_SECONDS: Final = 2
"""Seconds for sending the last answers, after executions had their time to end."""


async def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT, and then until calls in progress have ended, within the limits of the settings."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with (
        KubeClient.connect(kubeconfig=settings.kubeconfig) as kube,
        KubeClient.connect(kubeconfig=settings.kubeconfig, connections=_APPROVAL_CONNECTIONS) as approval_kube,
        BrokerManager.run(settings, kube=kube, approval_kube=approval_kube) as broker,
    ):
        servers = [
            build_server(
                app,
                port=port,
                keep_alive_seconds=_KEEP_ALIVE_SECONDS,
                shutdown_seconds=seconds,
                limits=settings.connection_limits,
            )
            for app, port, seconds in (
                (broker.sandbox_app, settings.port, _SEND_SECONDS),
                (broker.control.build_app(), settings.control_port, 1 + _SEND_SECONDS),
            )
        ]
        serving = [asyncio.create_task(server.serve()) for server in servers]
        stopping = asyncio.create_task(stop.wait())
        logging_readiness = asyncio.create_task(_log_readiness(broker, servers))
        try:
            await asyncio.wait({*serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
            log.info("stopping")
            broker.health.is_draining = True
            await _drain(broker, serving)
            # the control port outlives the last call: the operator reads the call counts there
            servers[0].should_exit = True
            await serving[0]
            servers[1].should_exit = True
            await serving[1]
        finally:
            stopping.cancel()
            logging_readiness.cancel()
            for task in serving:
                task.cancel()
            await asyncio.gather(*serving, return_exceptions=True)


async def _drain(broker: BrokerManager, serving: Sequence[asyncio.Task[None]]) -> None:
    """Serve until the operator chooses other replicas, and then the executions and calls of this one until they end.

    No other replica accepts the executions' grants.
    """
    settings = broker.settings
    await asyncio.wait(serving, timeout=settings.drain_seconds, return_when=asyncio.FIRST_COMPLETED)
    end = monotonic() + settings.shutdown_seconds
    pipeline = broker.pipeline
    while (
        (pipeline.quotas.has_open or pipeline.active_calls)
        and monotonic() < end
        and not any(task.done() for task in serving)
    ):
        await asyncio.wait(serving, timeout=_DRAIN_CHECK_SECONDS, return_when=asyncio.FIRST_COMPLETED)


async def _log_readiness(broker: BrokerManager, servers: Sequence[HttpServer]) -> None:
    for server in servers:
        await server.listening.wait()
    for reflector in tuple(broker.tracker.reflectors.values()):
        await reflector.synced.wait()
    exempt_started_objects()
    log.info("ready", extra={"namespaces": broker.settings.namespaces})


def main() -> int:
    """Read the settings, serve, and return the exit code."""
    try:
        settings = Settings.from_environment()
        settings.check_features(FEATURES)
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    configure_logging(settings.process_log_level)
    raise_file_limit()
    shorten_switch_interval()
    write_to_stdout()
    # libraries log addresses and the texts of unreadable answers
    for name in ("mcp", "httpx2", "uvicorn.error", "client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(settings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
