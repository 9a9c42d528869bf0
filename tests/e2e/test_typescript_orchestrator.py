"""The programs of the orchestrator in TypeScript on a real cluster, in each runtime, with stand-ins for servers."""

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.component.client_typescript.conftest import Runtime, archive, consumer, node, tools
from tests.e2e.providers import Provider
from tests.e2e.support import ROOT, Cluster, pool_manifest, require_gvisor
from tests.e2e.test_typescript import IMAGE, LIMITS
from tests.e2e.toolservers import running, stdio, tool_server

__all__ = ["archive", "consumer", "node", "tools"]

FOLDER = ROOT / "examples" / "typescript_orchestrator"
SERVERS = ("context7", "github", "supabase")
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def servers(installed: Cluster) -> Iterator[None]:
    source = (FOLDER / "standins.py").read_text()
    allowed = {"rules": [{"tools": ["*"], "action": "Allow"}]}
    manifests = [tool_server(name, stdio=stdio("python3", "-c", source, name), policy=allowed) for name in SERVERS]
    with running(installed, *manifests):
        yield


@pytest.fixture(params=["runc", "gvisor"])
def only_pool(
    request: pytest.FixtureRequest, installed: Cluster, provider: Provider, runtimes: dict[str, str | None]
) -> Iterator[None]:
    """One pool for TypeScript, so that the executions get a pod of this runtime."""
    if request.param not in runtimes:
        require_gvisor(installed, provider)
    name, runtime = f"orchestrator-{request.param}", runtimes[request.param]
    manifest = pool_manifest(name=name, runtime=runtime, image=IMAGE, warm=1, language="typescript", resources=LIMITS)
    installed.apply(manifest)
    installed.wait_for("Ready", "SandboxPool", name, seconds=120)
    yield
    installed.delete("SandboxPool", name)


def test_every_program_prints_what_its_tasks_return(
    installed: Cluster, servers: None, only_pool: None, url: str, api_key: str, consumer: Path, node: Path
) -> None:
    folder = Path(shutil.copytree(FOLDER, consumer / "example"))
    runtime = Runtime(name="node", command=(str(node), "--no-warnings"))
    environment = {"MCP_EXEC_GATEWAY": url, "MCP_EXEC_API_KEY": api_key, "MCP_EXEC_PLAIN_HTTP": "yes"}

    def run(name: str) -> list[str]:
        return asyncio.run(runtime.run(folder / name, **environment))

    assert run("01-basic-supabase.ts") == ["tables: users, orders", "called: supabase.list_tables", "task: completed"]
    assert run("02-token-efficiency.ts")[0].endswith("characters of the rows, and 2 of the answer")
    result, called = run("03-multi-server-workflow.ts")
    assert json.loads(result) == {"userCount": 10, "issueCreated": True, "docsFound": True}
    assert called == "servers called: context7, github, supabase"
    try:
        saved, found, report, _ = run("04-skills-reuse.ts")
    finally:
        installed.delete("Skill", *(name for name in installed.names("Skill") if name.startswith("db-backup-report-")))
    assert (saved, report) == ("saved: db-backup-report Draft", "2 tables, last migration: users")
    assert found.startswith("found: db-backup-report")
