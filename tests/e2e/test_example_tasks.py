"""The tasks of examples/tasks on a real cluster, with the ToolServers that their own manifest makes."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.e2e import toolservers
from tests.e2e.support import ROOT, Cluster
from tests.e2e.toolservers import running
from tests.support.pace import paced

TASKS = ROOT / "examples" / "tasks"
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def servers(installed: Cluster, runtimes: dict[str, str | None]) -> Iterator[None]:
    namespace: dict[str, object] = {"__file__": str(TASKS / "toolservers.py"), "__name__": "toolservers"}
    exec((TASKS / "toolservers.py").read_text(), namespace)
    with running(installed, *namespace["build"](toolservers.IMAGE, runtimes.get("gvisor"))):  # type: ignore[operator]
        yield


def test_every_task_runs_and_prints_what_it_saved(installed: Cluster, servers: None, url: str, api_key: str) -> None:
    environment = os.environ | {"MCP_EXEC_GATEWAY": url, "MCP_EXEC_API_KEY": api_key, "NO_PROXY": "*"}
    with toolservers.approver(installed, url) as approver:
        key = approver.headers["Authorization"].removeprefix("Bearer ")
        done = subprocess.run(
            [sys.executable, TASKS / "run_all.py"],
            env=environment | {"MCP_EXEC_APPROVER_API_KEY": key},
            capture_output=True,
            text=True,
            timeout=paced(240),
            check=False,
        )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    names = [path.stem for path in sorted(TASKS.glob("*.py")) if "    run_task(task)\n" in path.read_text()]
    assert f"{len(names)} tasks succeeded, 0 failed" in done.stdout
    saved = dict(re.findall(r"^(\w+) +\d.* (-?[\d,]+)$", done.stdout, re.MULTILINE))
    assert sorted(saved) == names
    assert "{'refused': [''], 'warned': ['u-42', 'u-7']}" in done.stdout
    assert int(saved["03_data_filtering"].replace(",", "")) > 100_000
    assert int(saved["01_basic_tool_call"].replace(",", "")) < 0  # one small call: losses are shown like wins
