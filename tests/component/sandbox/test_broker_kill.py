"""A run whose broker process is killed in the middle of its commit, as the sandbox sees it."""

import asyncio
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.component.broker.files_client import files_grant
from tests.component.broker.test_process import MODULE, broker
from tests.support.api_server import FakeApiServer
from tests.support.processes import SECONDS, started
from tests.support.relay import relaying

SAVE = """
import pathlib
for number in range(20):
    pathlib.Path(f"part-{{number}}").write_text({text!r} * 5000)
"""
READ = "import pathlib\nsorted({path.read_text()[:3] for path in pathlib.Path('.').glob('part-*')})"


@pytest.mark.parametrize("moment", ["before the commit arrives", "before its answer leaves"])
async def test_a_commit_survives_the_kill_of_the_broker(make_sandbox: Any, tmp_path: Path, moment: str) -> None:
    sandbox, reader = make_sandbox(), make_sandbox()
    async with AsyncExitStack() as stack, asyncio.timeout(3 * SECONDS):
        api = await stack.enter_async_context(FakeApiServer().running())
        env = broker(tmp_path, api, MCP_EXEC_FILES_FOLDER=str(tmp_path / "files"))
        first = await stack.enter_async_context(started(*MODULE, env=env))
        await first.says("ready")
        commits = 0

        async def watch(data: bytes, is_answer: bool) -> bool:
            """Kill the broker during the second commit, and start it again."""
            nonlocal commits
            commits += data.startswith(b"POST /v1/files/commit")
            if commits == 2 and first.process.returncode is None and is_answer == moment.startswith("before its"):
                first.tell(signal.SIGKILL)
                await first.ended()
                await (await stack.enter_async_context(started(*MODULE, env=env))).says("ready")
                return False
            return True

        port = await stack.enter_async_context(relaying(int(env["MCP_EXEC_PORT"]), watch))

        def run(sandbox: Any, code: str, uid: str) -> Any:
            workspace = {"name": "data", "mode": "Write"}
            files = {"token": files_grant(execution=uid), "workspace": workspace}
            files |= {"url": f"http://127.0.0.1:{port}", "maxArtifacts": 1, "maxArtifactBytes": 1000}
            job = {"id": uid, "owner": "0a" * 16, "session": True}
            done = sandbox.run(code, files=files, **job)
            sandbox.client.get("/v1/execution")  # waits until it is idle
            return done

        saved = await asyncio.to_thread(run, sandbox, SAVE.format(text="one"), "uid-1")
        assert saved.end["workspace"]["version"] == 1
        again = await asyncio.to_thread(run, sandbox, SAVE.format(text="two"), "uid-2")
        assert (again.phase, again.reason, first.process.returncode) == ("Succeeded", "", -signal.SIGKILL)
        assert again.end["workspace"] == {"base": 1, "version": 2, "changedFiles": 20, "bytes": 300_000, "leftOut": 0}
        found = await asyncio.to_thread(run, reader, READ, "uid-3")
        assert (found.result, found.end["workspace"]["version"]) == (["two"], 2)
