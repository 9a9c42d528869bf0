"""Template of the runners of a sandbox that is used again: a prepared interpreter that forks and runs no code.

A fork costs a fraction of a new interpreter with its imports. The template is out of the code's reach: it is
undumpable, so the code can't read, trace or change it; the code's seccomp filter refuses calls that name it. Its only
open files are its channel, a socket, and /dev/null: gVisor lets the code open those of other processes. It has no
secret: it never gets a job. All forks have its layout of addresses and its seed of hashes, and serve one owner.
"""

import contextlib
import ctypes
import os
import sys
from collections.abc import Sequence

from mcp_exec_sandbox.protocol import CONTROL_FD, EXITED
from mcp_exec_sandbox.runner import limits, seccomp
from mcp_exec_sandbox.runner.loop import AgentLoop
from mcp_exec_sandbox.runner.streams import Channel

_PR_SET_DUMPABLE = 4
_TASKS = "/proc/self/task"


class TemplateError(Exception):
    """The process can't be protected, so it forks no runner."""


def can_fork() -> bool:
    """Return whether forks of this process work: no library that it imported has threads, which a fork would lack.

    Some libraries (OpenBLAS) end their threads before a fork, and start them again when they need them.
    """
    if len(os.listdir(_TASKS)) == 1:
        return True
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return len(os.listdir(_TASKS)) == 1


def serve_forks(channel: Channel, descriptors: Sequence[int], loop: AgentLoop) -> None:
    """Fork a runner for each request, one after the other, and return in each of them.

    `descriptors` are the first runner's channel, stdout and stderr. The template reports the end of each runner, its
    child. In the template, raises EOFError once the supervisor has closed its channel.
    """
    set_dumpable(False)
    loop.close()
    limits.fork_lock.close()  # its memory would be common to all runners
    for target in (1, 2):
        os.dup2(0, target)
    template = os.getpid()
    while (child := os.fork()) != 0:
        for descriptor in descriptors:
            os.close(descriptor)
        _, status = os.waitpid(child, 0)
        channel.send({"type": EXITED, "code": os.waitstatus_to_exitcode(status)})
        channel.receive()
        descriptors = channel.take_descriptors()
    os.setsid()
    _replace_descriptors(descriptors)
    _reset_memory_priority()
    _renew_random_state()
    set_dumpable(True)
    seccomp.protect_template(template)


def set_dumpable(dumpable: bool) -> None:
    """Let processes of the same user trace this one and read its memory, or not.

    Raises:
        TemplateError: the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_DUMPABLE, int(dumpable), 0, 0, 0) != 0:
        raise TemplateError(os.strerror(ctypes.get_errno()))


def _replace_descriptors(descriptors: Sequence[int]) -> None:
    """Use these as channel, stdout and stderr, and share no open file with the template."""
    control, stdout, stderr = descriptors
    # The template's end of its own channel was closed by the fork.
    for source, target in ((control, CONTROL_FD), (stdout, 1), (stderr, 2)):
        os.dup2(source, target, inheritable=target != CONTROL_FD)
        os.close(source)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    limits.fork_lock.open()


def _reset_memory_priority() -> None:
    """Set what the code of an earlier runner may have set for the template, which gVisor does not refuse."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(limits.OOM_SCORE)


def _renew_random_state() -> None:
    """Give numpy's global generator, if it is imported, a state of its own. `random` does that at each fork."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
