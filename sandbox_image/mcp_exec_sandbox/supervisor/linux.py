"""System calls of the supervisor through libc: memory protection, signals by descriptor, adoption of orphans."""

import ctypes
import itertools
import os
import signal
import struct
from collections.abc import Sequence

_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_SFD_NONBLOCK_CLOEXEC = os.O_NONBLOCK | os.O_CLOEXEC
_SIGNAL_RECORD = struct.Struct("=IiiI")
_RECORD_BYTES = 255
"""Read size of one record: 128 bytes on Linux, 130 on gVisor; less than two."""

_SIGNAL_SET_BYTES = 128


class SystemCallError(Exception):
    """The kernel refused a system call that the sandbox depends on."""


def protect_memory() -> None:
    """Make this process undumpable: processes of the same user can't trace it or read its memory and environment.

    gVisor shows the environment anyway, so it is erased. Everything needed from it has been read before.
    """
    _prctl(_PR_SET_DUMPABLE, 0)
    variables = ctypes.POINTER(ctypes.c_void_p).in_dll(ctypes.CDLL(None), "environ")
    for index in itertools.count():
        address = variables[index]
        if address is None:
            break
        ctypes.memset(address, 0, len(ctypes.string_at(address)))


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants, which PID 1 is anyway."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def open_signal_descriptor(signals: Sequence[signal.Signals]) -> int:
    """Block every signal that can be blocked and return a descriptor that yields `signals`.

    No process can end the supervisor with a blocked signal, and the descriptor reports the sender.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    for number in signals:
        # Never called. gVisor drops a blocked signal that is ignored by default (SIGCHLD) unless it has a handler.
        signal.signal(number, lambda *_: None)
    members = ctypes.create_string_buffer(_SIGNAL_SET_BYTES)
    for number in signals:
        index = number - 1
        members[index // 8] = bytes([members[index // 8][0] | 1 << index % 8])
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = int(libc.signalfd(-1, members, _SFD_NONBLOCK_CLOEXEC))
    if descriptor < 0:
        raise SystemCallError(f"signalfd: {os.strerror(ctypes.get_errno())}")
    return descriptor


def read_signals(descriptor: int) -> list[tuple[int, int]]:
    """Return the signals since the last call, each with the pid of its sender (0: a process outside the container)."""
    received: list[tuple[int, int]] = []
    while True:
        try:
            record = os.read(descriptor, _RECORD_BYTES)
        except BlockingIOError:
            return received
        number, _, _, sender = _SIGNAL_RECORD.unpack_from(record)
        received.append((number, sender))


def interrupt_main_thread(pid: int, numbers: Sequence[signal.Signals]) -> None:
    """Send signals to the first thread of a process, which may be gone.

    The kernel gives a signal to a process to any of its threads if the first has one that it has not handled yet. Then
    a lock that the first thread waits for would not be interrupted.
    """
    libc = ctypes.CDLL(None)
    for number in numbers:
        libc.tgkill(pid, pid, int(number))


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise SystemCallError(f"prctl {option}: {os.strerror(ctypes.get_errno())}")
