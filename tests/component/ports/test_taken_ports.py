"""Ports of operator, gateway and broker that another process has."""

import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.component.broker.test_process import broker
from tests.component.gateway.test_process import gateway
from tests.component.ports.test_slow_clients import operator
from tests.support.api_server import FakeApiServer
from tests.support.ports import free_port
from tests.support.processes import started


@pytest.mark.parametrize(
    ("module", "environment", "variable"),
    [
        ("mcp_exec_operator", operator, "MCP_EXEC_PORT"),
        ("mcp_exec_gateway", gateway, "MCP_EXEC_PORT"),
        ("mcp_exec_gateway", gateway, "MCP_EXEC_METRICS_PORT"),
        ("mcp_exec_broker", broker, "MCP_EXEC_PORT"),
        ("mcp_exec_broker", broker, "MCP_EXEC_CONTROL_PORT"),
    ],
)
async def test_a_taken_port_ends_the_process_with_the_reason(
    api: FakeApiServer,
    tmp_path: Path,
    module: str,
    environment: Callable[[Path, FakeApiServer], dict[str, str]],
    variable: str,
) -> None:
    with socket.create_server(("0.0.0.0", free_port())) as taken:
        port = str(taken.getsockname()[1])
        async with started("-m", module, env={**environment(tmp_path, api), variable: port}) as running:
            assert await running.ended() != 0
            said = [each["message"] for each in running.records if each["level"] == "error"]
    assert any(port in message and "address already in use" in message.lower() for message in said), said
