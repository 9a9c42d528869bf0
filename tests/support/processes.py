"""Processes of operator, gateway and broker."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.support.constants import SANDBOX_KEY
from tests.support.pace import paced

SECONDS = paced(40)


def write_kubeconfig(path: Path, url: str) -> Path:
    """Write a kubeconfig of the API server at a URL."""
    named = {"name": "it"}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "contexts": [{**named, "context": {"cluster": "it", "user": "it"}}],
        "clusters": [{**named, "cluster": {"server": url}}],
        "users": [{**named, "user": {"token": "a-token"}}],
    }
    path.write_text(yaml.safe_dump(config))
    return path


def environment(folder: Path, url: str, **changes: str) -> dict[str, str]:
    """Return the variables that each process needs, a kubeconfig of the API server at `url`, and `changes`.

    The sandbox key is in a folder; an operator, which has `MCP_EXEC_SANDBOX_KEY_SECRET`, has none. Variables of the
    coverage measurement pass through.
    """
    keys = folder / "sandbox-key"
    keys.mkdir(exist_ok=True)
    (keys / "key").write_bytes(SANDBOX_KEY)
    source = {} if "MCP_EXEC_SANDBOX_KEY_SECRET" in changes else {"MCP_EXEC_SANDBOX_KEY_FOLDER": str(keys)}
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        **{name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")},
        "MCP_EXEC_NAMESPACES": "agents",
        "MCP_EXEC_RELEASE_NAMESPACE": "mcp-exec-system",
        **source,
        "MCP_EXEC_KUBECONFIG": str(write_kubeconfig(folder / "kubeconfig", url)),
        **changes,
    }


class Process:
    """A process and its log."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []
        self._read = asyncio.Condition()
        self._reading = asyncio.create_task(self._follow())

    @property
    def records(self) -> list[dict[str, Any]]:
        """The records logged so far."""
        return [json.loads(line) for line in self.lines]

    async def says(self, text: str) -> None:
        """Wait until it has logged a message with this text."""
        async with asyncio.timeout(SECONDS), self._read:
            await self._read.wait_for(lambda: self._reading_is_over() or self._said(text))
        assert self._said(text), self.lines

    async def ended(self) -> int:
        """Wait until it has ended, and return its exit code."""
        async with asyncio.timeout(SECONDS):
            await self._reading
            return await self.process.wait()

    def tell(self, signal: int) -> None:
        self.process.send_signal(signal)

    async def _follow(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            async with self._read:
                self.lines.append(line.decode())
                self._read.notify_all()
        async with self._read:
            self._read.notify_all()

    def _said(self, text: str) -> bool:
        return any(text in line["message"] for line in self.records)

    def _reading_is_over(self) -> bool:
        return self.process.stderr is not None and self.process.stderr.at_eof()


@asynccontextmanager
async def started(*arguments: str, env: Mapping[str, str]) -> AsyncIterator[Process]:
    """Run Python with these arguments. Kill it at the end if it still runs."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *arguments), env=env, stderr=asyncio.subprocess.PIPE
    )
    made = Process(process)
    try:
        yield made
    finally:
        if process.returncode is None:
            process.kill()
        await made.ended()


FEW_FILES = """
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 4096))
runpy.run_module(sys.argv[1], run_name="__main__")
"""
"""A program that runs a module with the file limit of a container that may have few files open."""


def most_files(process: Process) -> int:
    """Return the process's limit of open files."""
    limits = Path(f"/proc/{process.process.pid}/limits").read_text()
    line = next(line for line in limits.splitlines() if line.startswith("Max open files"))
    return int(line.split()[3])
