"""The mirror of the code's output in the container's log."""

import fcntl
import os

import pytest

from mcp_exec_sandbox.supervisor.execution.events import EventLog, LogMirror


@pytest.fixture
def pipe():
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    yield reader, writer
    os.close(reader)
    os.close(writer)


def test_lines_have_a_prefix_and_no_character_that_a_terminal_would_interpret(pipe):
    reader, writer = pipe
    log = EventLog(mirror=LogMirror(writer).add)
    log.append("status", phase="Running")
    log.append("stdout", text='{"message": "ready"}\nhal')
    log.append("stderr", text="\x1b[31mred\r\n")
    log.append("stdout", text="f\tä\n\nlast")
    log.append("end", phase="Succeeded")
    assert os.read(reader, 65536).decode().splitlines() == [
        'stdout | {"message": "ready"}',
        r"stderr | \x1b[31mred\r",
        "stdout | half\tä",
        "stdout | ",
        "stdout | last",
    ]


def test_a_long_line_is_split_and_each_part_fits_in_a_pipe(pipe):
    reader, writer = pipe
    mirror = LogMirror(writer)
    mirror.add("stdout", {"text": "\U0001f986" * 3500})
    mirror.add("stdout", {"text": "\x00" * 900 + "\n"})
    lines = os.read(reader, 65536).splitlines()
    assert all(line.startswith(b"stdout | ") and len(line) < 4096 for line in lines)
    text = "".join(line.decode().removeprefix("stdout | ") for line in lines)
    assert text == "\U0001f986" * 3500 + "\\x00" * 900


def test_a_log_that_nobody_reads_holds_up_nothing_and_says_what_it_lacks(pipe):
    reader, writer = pipe
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 8192)
    mirror = LogMirror(writer)
    for number in range(1000):
        mirror.add("stdout", {"text": f"line {number}\n"})
    kept = os.read(reader, 65536).decode().splitlines()
    mirror.add("stdout", {"text": "later\n"})
    assert os.read(reader, 65536).decode().splitlines() == [
        f"({1000 - len(kept)} lines of output are not in this log)",
        "stdout | later",
    ]
