"""Two brokers keep records in one PostgreSQL while brokers, operator and database are killed under load."""

import asyncio
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from tests.e2e.chaos.faults import Faults
from tests.e2e.providers import Devcluster, Provider
from tests.e2e.support import RELEASE, ROOT, SYSTEM, Cluster, Gateway
from tests.e2e.toolservers import running, stdio, tool_server
from tests.support.pace import paced
from tests.support.postgres import Postgres, find_programs
from tests.support.until import eventually

pytestmark = pytest.mark.timeout(900)
SECRET = "records-database"
SERVER = tool_server("kept", stdio=stdio("mcp-server-filesystem", "/data", dataSize="16Mi"))
CODE = "from servers.kept import list_allowed_directories\nlen(await list_allowed_directories())"
ROUNDS, RUNS = 3, 8


@dataclass(frozen=True, kw_only=True)
class Database:
    """A PostgreSQL server of this machine, which is the cluster's node."""

    server: Postgres
    runner: asyncio.Runner

    def crash_and_start(self) -> None:
        """End it and its connections at once, and let it recover."""
        self.runner.run(self.server.crash())
        self.runner.run(self.server.start())


@pytest.fixture
def database(installed: Cluster, provider: Provider) -> Iterator[Database]:
    """A database that two brokers of the release use."""
    if not isinstance(provider, Devcluster):
        pytest.skip("needs devcluster, whose node is this machine")
    if find_programs() is None:
        pytest.skip("needs PostgreSQL of Debian: install the package postgresql")
    addresses = installed.select("Node", namespace=None)[0]["status"]["addresses"]
    address = next(each["address"] for each in addresses if each["type"] == "InternalIP")
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        server = runner.run(stack.enter_async_context(Postgres.running(address)))
        try:
            metadata = {"name": SECRET, "namespace": SYSTEM}
            installed.apply(
                {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"url": server.url}}
            )
            values = {
                "broker.replicas": "2",
                "broker.files.enabled": "false",
                "broker.records.database.secret": SECRET,
                "broker.records.volume.temporary": "false",
            }
            installed.helm(
                "upgrade", RELEASE, str(ROOT / "charts/mcp-exec"), "--namespace", SYSTEM, "--reuse-values",
                "--wait", "--timeout", "4m", *(f"--set={key}={value}" for key, value in values.items()),
            )  # fmt: skip
            yield Database(server=server, runner=runner)
        finally:
            installed.helm("rollback", RELEASE, "--namespace", SYSTEM, "--wait", "--timeout", "4m")
            installed.delete("Secret", SECRET, namespace=SYSTEM)
            runner.run(stack.aclose())


def export(url: str, api_key: str, table: str) -> list[dict[str, Any]]:
    """Return the rows of a table, as the command line exports them."""
    command = [sys.executable, "-m", "mcp_exec_client", "records", "export", table]
    env = os.environ | {"MCP_EXEC_GATEWAY": url, "MCP_EXEC_API_KEY": api_key}
    ended = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=paced(60))
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_every_execution_has_one_record_after_brokers_operator_and_database_were_killed(
    installed: Cluster, provider: Provider, database: Database, gateway: Gateway, url: str, api_key: str
) -> None:
    assert isinstance(provider, Devcluster)
    faults = Faults(cluster=installed, provider=provider, random=random.Random(1))

    def start(number: int) -> str:
        body = {"code": CODE, "tools": ["kept.*"], "poolRef": {"name": "runc"}, "ttlSecondsAfterFinished": 0}
        answer = gateway.client.post("/v1/executions", params={"wait": "0"}, json=body)
        assert answer.status_code == 202, f"{number}: {answer.text}"
        return str(answer.json()["name"])

    names: list[str] = []
    with running(installed, SERVER), ThreadPoolExecutor(max_workers=4) as threads:
        for _ in range(ROUNDS):
            for break_it in (faults.kill_broker, database.crash_and_start, faults.kill_leader):
                started = [threads.submit(start, number) for number in range(RUNS)]
                break_it()
                names += [each.result() for each in started]
        eventually(
            lambda: not installed.names("CodeExecution") & set(names),
            seconds=180, every=1, what="every execution was recorded, and deleted after it",
        )  # fmt: skip
    rows = [row for row in export(url, api_key, "executions") if row["name"] in names]
    assert sorted(row["name"] for row in rows) == sorted(names)
    succeeded = {row["uid"] for row in rows if row["phase"] == "Succeeded"}
    assert succeeded, rows

    def find_unrecorded() -> bool:
        calls = export(url, api_key, "calls")
        assert len({call["id"] for call in calls}) == len(calls)
        return not succeeded - {call["execution_uid"] for call in calls if call["outcome"] == "ok"}

    eventually(find_unrecorded, seconds=60, every=1, what="the calls of all executions that succeeded are recorded")
