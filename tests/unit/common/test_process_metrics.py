"""What the metrics of each process say of the process itself."""

from pathlib import Path

import pytest
from prometheus_client import generate_latest

from mcp_exec_broker.metrics import Metrics as BrokerMetrics
from mcp_exec_common.process.metrics import MetricsBase
from mcp_exec_gateway.metrics import Metrics as GatewayMetrics
from mcp_exec_operator.metrics import Metrics as OperatorMetrics

PROCESSES = {
    "operator": OperatorMetrics,
    "gateway": lambda: GatewayMetrics(count_waits=lambda: 0, count_streams=lambda: 0),
    "broker": BrokerMetrics,
}


@pytest.mark.parametrize("process", PROCESSES)
def test_each_process_has_its_memory_and_no_times_of_creation(process: str) -> None:
    made = PROCESSES[process]()
    text = generate_latest(made.registry).decode()
    for name in ("process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds", "python_info"):
        assert f"\n{name}" in text, name
    assert f'mcp_exec_build_info{{component="{process}"' in text
    assert [line for line in text.splitlines() if "_created" in line] == []


@pytest.mark.parametrize(
    ("content", "limit"), [("536870912\n", 536870912), ("max\n", None), ("9223372036854771712\n", None), (None, None)]
)
def test_the_limit_of_memory_is_that_of_the_container(tmp_path: Path, content: str | None, limit: int | None) -> None:
    file = tmp_path / "memory.max"
    if content is not None:
        file.write_text(content)
    made = MetricsBase("it_")
    made.declare_process("operator", limit_files=[file])
    assert made.registry.get_sample_value("mcp_exec_memory_limit_bytes", {"component": "operator"}) == limit
