"""A real supervisor, as a process on this machine."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.constants import DEADLINE, POD, SANDBOX_KEY
from tests.support.environment import no_cache_named

from mcp_exec_common.supervisor.tokens import supervisor_token, token_digest

__all__ = ["no_cache_named"]

ROOT = Path(__file__).parents[2]


@pytest.fixture
async def supervisor_port(tmp_path: Path) -> AsyncIterator[int]:
    """The port of a real supervisor that stands ready."""
    for folder in ("workspace", "tmp"):
        (tmp_path / folder).mkdir()
    token = supervisor_token(key=SANDBOX_KEY, namespace="agents", pod=POD)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "mcp_exec_sandbox"),
        stdout=asyncio.subprocess.PIPE,
        cwd="/",
        env={
            "PATH": os.environ["PATH"],
            **{name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")},
            "PYTHONPATH": os.pathsep.join((str(ROOT / "sandbox_image"), str(ROOT / "crds"))),
            "MCP_EXEC_TOKEN_SHA256": token_digest(token),
            "MCP_EXEC_PORT": "0",
            "MCP_EXEC_HOST": "127.0.0.1",
            "MCP_EXEC_WORKSPACE": str(tmp_path / "workspace"),
            "MCP_EXEC_TMP": str(tmp_path / "tmp"),
            "MCP_EXEC_MAX_PROCESSES": "4096",
        },
    )
    assert process.stdout is not None
    async with asyncio.timeout(DEADLINE):
        ready = json.loads(await process.stdout.readline())
    yield ready["port"]
    process.terminate()  # killed, it would leave a runner that it has stopped and not yet ended
    async with asyncio.timeout(DEADLINE):
        await process.communicate()
