"""OpenAI Agents SDK: a sandbox client. The agent's shell and files are those of a session of mcp-exec.

A session is one pod: variables, files and processes of its commands stay until it is deleted.
"""

import asyncio
import base64
import io
import os
import uuid
from pathlib import Path
from typing import Any, Literal

from agents import RunConfig, Runner, set_tracing_disabled
from agents.run_config import SandboxRunConfig
from agents.sandbox import ExecResult, Manifest, SandboxAgent
from agents.sandbox.capabilities import Shell
from agents.sandbox.errors import ExecTimeoutError, ExecTransportError, WorkspaceReadNotFoundError
from agents.sandbox.session import (
    BaseSandboxClient,
    BaseSandboxClientOptions,
    BaseSandboxSession,
    SandboxSession,
    SandboxSessionState,
)
from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot
from mcp_exec_client import AsyncClient, McpExecError

TASK = "Write the first 20 square numbers to squares.txt, and say the sum."
MAX_BYTES = 64 * 1024
"""Bytes of a file, and of each output of a command, that are passed on."""
SECONDS = 50
EXEC = """
import base64, subprocess

def encode(data):
    if len(data) > limit:
        data = data[:limit] + f"\\n[cut: {limit} of {len(data)} bytes]\\n".encode()
    return base64.b64encode(data).decode()

try:
    done = subprocess.run(command, capture_output=True, timeout=seconds, stdin=subprocess.DEVNULL)
    outcome = {"code": done.returncode, "out": encode(done.stdout), "err": encode(done.stderr)}
except subprocess.TimeoutExpired:
    outcome = {"code": None}
except OSError as error:
    outcome = {"code": 127, "out": "", "err": encode(str(error).encode())}
outcome
"""
READ = """
import base64, os

data = open(path, "rb").read(limit + 1) if os.path.isfile(path) else None
None if data is None else base64.b64encode(data).decode()
"""
WRITE = """
import base64, os

os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
with open(path, "wb") as file:
    written = file.write(base64.b64decode(content))
written
"""
PACK = """
import base64, io, tarfile

buffer = io.BytesIO()
with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
    archive.add(root, arcname=".")
base64.b64encode(buffer.getvalue()).decode()
"""
UNPACK = """
import base64, io, tarfile

with tarfile.open(fileobj=io.BytesIO(base64.b64decode(content))) as archive:
    archive.extractall(root, filter="data")
"""


class McpExecSessionState(SandboxSessionState):
    """What finds a session again."""

    type: Literal["mcp-exec"] = "mcp-exec"
    name: str


class McpExecOptions(BaseSandboxClientOptions):
    """Options of a session."""

    type: Literal["mcp-exec"] = "mcp-exec"
    pool: str = "default"


class McpExecSession(BaseSandboxSession):
    """A session of mcp-exec as the SDK sees it: commands, and files below the root of the manifest."""

    def __init__(self, state: McpExecSessionState, client: AsyncClient) -> None:
        self.state = state
        self._client = client

    async def _exec_internal(self, *command: str | Path, timeout: float | None = None) -> ExecResult:
        seconds = min(timeout or SECONDS, SECONDS)
        words = [str(word) for word in command]
        try:
            found = await self._run(EXEC, command=words, seconds=seconds, limit=MAX_BYTES)
        except McpExecError as error:
            raise ExecTransportError(command=words, cause=error, message=str(error)) from error
        if found["code"] is None:
            raise ExecTimeoutError(command=words, timeout_s=seconds)
        out, err = (base64.b64decode(found[name]) for name in ("out", "err"))
        return ExecResult(stdout=out, stderr=err, exit_code=found["code"])

    async def read(self, path: Path, *, user: Any = None) -> io.IOBase:
        where = str(self.normalize_path(path))
        content = await self._run(READ, path=where, limit=MAX_BYTES)
        if content is None:
            raise WorkspaceReadNotFoundError(path=path)
        data = base64.b64decode(content)
        if len(data) > MAX_BYTES:
            raise ValueError(f"{path} has more than {MAX_BYTES} bytes: read a part by a command")
        return io.BytesIO(data)

    async def write(self, path: Path, data: io.IOBase, *, user: Any = None) -> None:
        content = base64.b64encode(data.read()).decode()
        await self._run(WRITE, path=str(self.normalize_path(path, for_write=True)), content=content)

    async def running(self) -> bool:
        return (await self._client.sessions.get(self.state.name)).phase not in ("Ended", "Lost")

    async def persist_workspace(self) -> io.IOBase:
        return io.BytesIO(base64.b64decode(await self._run(PACK, root=self.state.manifest.root)))

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        await self._run(UNPACK, root=self.state.manifest.root, content=base64.b64encode(data.read()).decode())

    async def _run(self, code: str, **context: Any) -> Any:
        done = await self._client.run(
            code, context=context, session=self.state.name, timeout_seconds=SECONDS + 10, output_bytes=2 * MAX_BYTES
        )
        done.raise_for_failure()
        if done.output is not None and done.output.truncated:
            raise ValueError("the result is larger than an execution may return")
        return done.result


class McpExecSandboxClient(BaseSandboxClient[McpExecOptions]):
    """Creates sessions, and deletes them at the end of a run."""

    backend_id = "mcp-exec"
    supports_default_options = True

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: McpExecOptions | None = None,
    ) -> SandboxSession:
        session_id = uuid.uuid4()
        name = f"agent-{session_id.hex[:12]}"
        await self._client.sessions.create(name, pool=(options or McpExecOptions()).pool)
        state = McpExecSessionState(
            session_id=session_id,
            name=name,
            manifest=self._validate_manifest_for_create(manifest or Manifest()),
            snapshot=resolve_snapshot(snapshot, str(session_id)),
        )
        return self._wrap_session(McpExecSession(state, self._client))

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        assert isinstance(state, McpExecSessionState)
        return self._wrap_session(McpExecSession(state, self._client))

    async def delete(self, session: SandboxSession) -> SandboxSession:
        state = session.state
        assert isinstance(state, McpExecSessionState)
        await self._client.sessions.delete(state.name)
        return session

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        return McpExecSessionState.model_validate(payload)


async def main() -> None:
    set_tracing_disabled(True)
    async with AsyncClient() as client:
        agent = SandboxAgent("worker", capabilities=[Shell()], model=os.environ.get("LLM_MODEL"))
        config = RunConfig(sandbox=SandboxRunConfig(client=McpExecSandboxClient(client)))
        done = await Runner.run(agent, TASK, run_config=config, max_turns=8)
    for item in done.new_items:
        if item.type == "tool_call_item":
            print(f"-> {item.raw_item.name}")
        elif item.type == "tool_call_output_item":
            print(str(item.output).strip().splitlines()[-1])
    print(done.final_output)


if __name__ == "__main__":
    asyncio.run(main())
