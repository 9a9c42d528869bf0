"""Output and messages reach the supervisor by two ways; their order is the one in which the code made them."""

import asyncio
import os
import socket

import pytest

from mcp_exec_sandbox.protocol import RunnerLimits, encode
from mcp_exec_sandbox.supervisor.execution import runner_process as module
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

    def on_output(self, stream, data):
        self.heard += bytes(data).decode()
        self.news.set()

    async def until(self, length):
        async with asyncio.timeout(10):
            while len(self.heard) < length:
                self.news.clear()
                await self.news.wait()


@pytest.fixture
async def ends(monkeypatch):
    """A runner that is no process: the test has its ends of the pipes. Gives the runner, stdout and the channel."""
    kept = []

    def spawn(limits, environment, control, outputs):
        # with stderr, whose end would be heard before anything on stdout
        kept.extend([*map(os.dup, outputs), socket.socket(fileno=os.dup(control))])
        return 0

    monkeypatch.setattr(module, "_spawn", spawn)
    runner = RunnerProcess(limits=RunnerLimits(memory_bytes=1, max_tasks=1, storage_bytes=1), environment={})
    stdout, stderr, channel = kept
    yield runner, stdout, channel
    loop = asyncio.get_running_loop()
    for descriptor in runner._outputs.values():
        loop.remove_reader(descriptor)
        os.close(descriptor)
    loop.remove_reader(runner._control)
    runner._control.close()
    os.close(stdout)
    os.close(stderr)
    channel.close()


async def test_what_is_written_while_the_messages_are_read_stays_behind_its_own_message(ends, monkeypatch):
    runner, stdout, channel = ends
    told = Told(runner)
    read, turns = runner._read_control, []

    def read_and_be_late():
        read()
        turns.append(None)
        if len(turns) == 1:
            os.write(stdout, b"before\n")
            channel.sendall(encode({"type": "call", "written": 13}))
            os.write(stdout, b"after\n")

    monkeypatch.setattr(runner, "_read_control", read_and_be_late)
    runner.listen(told)
    os.write(stdout, b"start\n")
    await told.until(len("start before call after "))
    assert told.heard == "start\nbefore\n<call>after\n"


async def test_an_output_that_is_closed_is_read_to_its_end_and_watched_no_more(ends):
    runner, stdout, _ = ends
    told = Told(runner)
    os.write(stdout, b"last words")
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, stdout)
    os.close(nothing)
    runner.listen(told)
    await told.until(len("last words"))
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(10):
        while 1 in runner._outputs:
            turn = loop.create_future()
            loop.call_later(0.001, turn.set_result, None)
            await turn
    assert told.heard == "last words"
