"""The command line under test, in this process and as one of its own."""

import asyncio
import os
import pty
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.constants import DEADLINE

from mcp_exec_client.cli.main import main

ROOT = Path(__file__).parents[3]


@dataclass
class Ended:
    """What a command wrote, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def last(self) -> str:
        """The last line on standard error."""
        return (self.err.splitlines() or [""])[-1]


Command = Callable[..., Coroutine[Any, Any, Ended]]
"""Runs a command with these arguments."""


async def call(
    capsys: pytest.CaptureFixture[str], *arguments: object, entry: Callable[[Sequence[str]], None] = main
) -> Ended:
    """Run a command while this loop serves what it connects to."""

    def run() -> int:
        try:
            entry([str(argument) for argument in arguments])
        except SystemExit as ended:
            return int(str(ended.code))
        return 0

    capsys.readouterr()
    async with asyncio.timeout(DEADLINE):
        code = await asyncio.to_thread(run)
    said = capsys.readouterr()
    return Ended(code, said.out, said.err)


class TerminalSession:
    """A command at a terminal: what it shows, and what is typed."""

    def __init__(self, process: asyncio.subprocess.Process, terminal: int) -> None:
        self.process = process
        self.shown = ""
        self._terminal = terminal
        self._changed = asyncio.Event()
        asyncio.get_running_loop().add_reader(terminal, self._read)

    def _read(self) -> None:
        try:
            content = os.read(self._terminal, 65536)
        except OSError:  # the other end is closed
            content = b""
        if not content:
            asyncio.get_running_loop().remove_reader(self._terminal)
        self.shown += content.decode(errors="replace")
        self._changed.set()

    async def shows(self, text: str) -> None:
        """Wait until a text is shown."""
        async with asyncio.timeout(DEADLINE):
            while text not in self.shown:
                self._changed.clear()
                await self._changed.wait()

    def type(self, text: str) -> None:
        """Type a text; `\\x03` is Ctrl-C."""
        os.write(self._terminal, text.encode())

    async def ended(self) -> int:
        """Return the exit code."""
        async with asyncio.timeout(DEADLINE):
            return await self.process.wait()


@asynccontextmanager
async def at_terminal(*arguments: str, environment: dict[str, str]) -> AsyncIterator[TerminalSession]:
    """Start a command at a terminal."""
    ours, theirs = pty.openpty()
    kept = {
        name: value for name, value in os.environ.items() if name.startswith(("PATH", "PYTHON", "COVERAGE_", "XDG_"))
    }
    process = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-c",
            "import os, fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
            "from mcp_exec_client.cli.main import main; main()",
            *arguments,
        ),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        cwd=ROOT,
        env={**kept, "TERM": "xterm", "COLUMNS": "200", **environment},
    )
    os.close(theirs)
    try:
        yield TerminalSession(process, ours)
    finally:
        asyncio.get_running_loop().remove_reader(ours)
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(ours)
