"""Output and messages reach the supervisor by two ways; their order is the code's."""

import asyncio
import os
import socket

import pytest
from tests.support.pace import paced
from tests.support.until import until

from mcp_exec_sandbox.protocol import RunnerLimits, encode
from mcp_exec_sandbox.supervisor.execution.runner_process import RunnerProcess


class Told:
    """Takes output up to where each message was sent, as an execution does."""

    def __init__(self, runner):
        self.runner = runner
        self.heard = ""
        self.news = asyncio.Event()

    def on_message(self, message):
        self.runner.take_output({1: message["written"]})
        self.heard += f"<{message['type']}>"
        self.news.set()

    def on_control(self, size):
        pass

    def on_output(self, stream, data):
        self.heard += bytes(data).decode()
        self.news.set()

    async def until(self, length):
        async with asyncio.timeout(paced(10)):
            while len(self.heard) < length:
                self.news.clear()
                await self.news.wait()


@pytest.fixture
async def ends():
    """A runner without a process, whose ends of the pipes the test holds: the runner, its stdout and its channel."""
    kept = []

    def spawn(limits, environment, control, outputs):
        # With stderr, whose end would otherwise be read before anything on stdout.
        kept.extend([*map(os.dup, outputs), socket.socket(fileno=os.dup(control))])
        return 0

    limits = RunnerLimits(memory_bytes=1, max_tasks=1, storage_bytes=1)
    runner = RunnerProcess(limits=limits, environment={}, spawn=spawn)
    stdout, stderr, channel = kept
    yield runner, stdout, channel
    runner.close()
    os.close(stdout)
    os.close(stderr)
    channel.close()


class WrittenMeanwhile(Told):
    """The code writes on while the first message is read; the supervisor gets its second message late."""

    def __init__(self, runner, stdout, channel):
        super().__init__(runner)
        self.stdout = stdout
        self.late = lambda: channel.sendall(encode({"type": "call", "written": 13}))

    def on_message(self, message):
        super().on_message(message)
        if message["type"] == "first":
            os.write(self.stdout, b"before\n")
            os.write(self.stdout, b"after\n")

    def on_output(self, stream, data):
        super().on_output(stream, data)
        self.late()
        self.late = lambda: None


async def test_what_is_written_while_the_messages_are_read_stays_behind_its_own_message(ends):
    runner, stdout, channel = ends
    told = WrittenMeanwhile(runner, stdout, channel)
    runner.listen(told)
    os.write(stdout, b"start\n")  # readable before the message, and so handled first
    channel.sendall(encode({"type": "first", "written": 0}))
    await told.until(len("<first>start before <call>after "))
    assert told.heard == "<first>start\nbefore\n<call>after\n"


def list_open_files():
    return {os.path.basename(os.path.realpath(each.path)) for each in os.scandir("/proc/self/fd")}


async def test_an_output_that_is_closed_is_read_to_its_end_and_watched_no_more(ends):
    runner, stdout, _ = ends
    told = Told(runner)
    os.write(stdout, b"last words")
    pipe = os.readlink(f"/proc/self/fd/{stdout}")
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, stdout)
    os.close(nothing)
    runner.listen(told)
    await told.until(len("last words"))
    await until(lambda: pipe not in list_open_files())
    assert told.heard == "last words"
