"""Processes that a benchmark measures."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from processes import daemons


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def start(stack: ExitStack, *command: str) -> "subprocess.Popen[str]":
    process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    stack.callback(process.kill)
    return process


def test_of_two_control_planes_the_one_of_the_same_starter_counts(stack: ExitStack, tmp_path: Path) -> None:
    sleep = shutil.which("sleep")
    assert sleep
    program = tmp_path / "sleeping-daemon"  # the name of no program that another test of this process has started
    program.symlink_to(sleep)
    others = [start(stack, "sh", "-c", f"{program} 300 & echo $!; wait") for _ in range(2)]
    strangers = {int(each.stdout.readline()) for each in others if each.stdout is not None}
    own = start(stack, str(program), "300")
    try:
        assert daemons([program.name], parent=os.getpid()) == {program.name: own.pid}
        assert daemons([program.name], parent=others[0].pid)[program.name] in strangers
    finally:
        for pid in strangers:
            os.kill(pid, 9)
