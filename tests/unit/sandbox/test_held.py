"""What the kernel of a sandbox holds after a run ends the sandbox."""

import os

import pytest

from mcp_exec_sandbox.supervisor import cleaning
from mcp_exec_sandbox.supervisor.cleaning import MEMORY_BYTES, HeldResources, NotCleaned

DISK_BYTES = 1 << 20


class Kernel:
    """The memory and disk that a sandbox uses, as its kernel shows them one after the other."""

    def __init__(self, monkeypatch, *, memory=(0,), free=(1 << 30,)):
        self.memory, self.free = list(memory), list(free)
        monkeypatch.setattr(cleaning.os, "statvfs", self.read_disk)

    def read_memory(self):
        return self.memory.pop(0) if len(self.memory) > 1 else self.memory[0]

    def read_disk(self, folder):
        free = self.free.pop(0) if len(self.free) > 1 else self.free[0]
        return os.statvfs_result((4096, 1, 0, free, free, 0, 0, 0, 0, 255))


async def check(kernel, tmp_path):
    before = HeldResources(read_memory=kernel.read_memory, folder=tmp_path, disk_bytes=DISK_BYTES)
    await before.check(seconds=0.05)


async def test_what_an_interpreter_needs_is_allowed(monkeypatch, tmp_path):
    await check(Kernel(monkeypatch, memory=[5, MEMORY_BYTES + 5], free=[1 << 30, (1 << 30) - DISK_BYTES]), tmp_path)


async def test_memory_that_is_freed_a_moment_later_is_waited_for(monkeypatch, tmp_path):
    await check(Kernel(monkeypatch, memory=[0, 1 << 40, 1 << 40, 0]), tmp_path)


async def test_memory_that_is_held_ends_the_sandbox(monkeypatch, tmp_path):
    with pytest.raises(NotCleaned, match="memory"):
        await check(Kernel(monkeypatch, memory=[5, MEMORY_BYTES + 6]), tmp_path)


async def test_disk_that_is_held_ends_the_sandbox(monkeypatch, tmp_path):
    with pytest.raises(NotCleaned, match="disk"):
        await check(Kernel(monkeypatch, free=[1 << 30, (1 << 30) - DISK_BYTES - 1]), tmp_path)
