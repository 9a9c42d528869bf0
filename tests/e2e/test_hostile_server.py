"""A ToolServer whose results are bombs: the broker stays, and other executions lose nothing."""

from typing import Any

import pytest

from tests.e2e.support import ROOT, SYSTEM, Cluster, Gateway
from tests.e2e.toolservers import Agent, running, stdio, tool_server

pytestmark = pytest.mark.timeout(600)
SOURCE = (ROOT / "tests" / "component" / "broker" / "hostile_stdio_server.py").read_text()
BOMBS = """
import asyncio
from servers.bombs import dense
found = await asyncio.gather(*(dense() for _ in range(4)), return_exceptions=True)
sorted({str(getattr(each, "reason", each)) for each in found})
"""
CALLS = """
from servers.calm import list_allowed_directories
[len(await list_allowed_directories()) > 0 for _ in range(60)]
"""
FINE = "from servers.bombs import fine\nawait fine()"


def count_restarts(cluster: Cluster) -> dict[str, int]:
    """Return the restarts of each pod of the broker."""
    pods: list[dict[str, Any]] = cluster.select("Pod", labels="app.kubernetes.io/component=broker", namespace=SYSTEM)
    return {pod["metadata"]["name"]: pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods}


def test_dense_results_of_a_server_restart_no_broker_and_disturb_no_other_execution(
    installed: Cluster, gateway: Gateway
) -> None:
    agent = Agent(cluster=installed, gateway=gateway, pool="runc")
    bombs = tool_server("bombs", stdio=stdio("python3", "-c", SOURCE))
    calm = tool_server("calm", stdio=stdio("mcp-server-filesystem", "/data", dataSize="16Mi"))
    with running(installed, bombs, calm):
        before = count_restarts(installed)
        attacks = [agent.start(BOMBS, "bombs.*") for _ in range(3)]
        assert agent.value(CALLS, "calm.*") == [True] * 60
        for name in attacks:
            status = installed.finished(name)
            assert (status["phase"], status["output"]["result"]) == ("Succeeded", ["ResultTooLarge"]), status
        assert agent.value(FINE, "bombs.*") == "fine"
        assert count_restarts(installed) == before
