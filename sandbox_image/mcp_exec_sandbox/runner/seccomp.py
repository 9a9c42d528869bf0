"""Seccomp filter that denies the code access to the supervisor and to namespaces, permanently and for all children.

The filter refuses system calls that name the supervisor's pid. Both processes run as the same user, so without it the
code could signal the supervisor or lower its limits. Linux protects PID 1 from signals (not from limits), gVisor
doesn't. For the same reason it refuses each way to let the kernel send a signal to a process of the code's choice, and
each call that reaches into another process by a descriptor. The filter also refuses new namespaces: in its own user
namespace the code would have every capability. The container's default profile prevents that on Linux, and nothing does
in gVisor. A seccomp filter needs no rights besides `no_new_privs`.

Objects of System V IPC and POSIX message queues would outlive the processes of a run. The filter refuses to make any,
as a kernel without them does. The supervisor stops code by SIGSTOP, so the filter refuses each way to let the kernel
send SIGCONT: POSIX timers, the signal of a parent's death, the signal of a child's end. It refuses threads that do not
share the open files of their process, because they would hide them from the supervisor. A runner that was forked from a
template has a second, smaller filter for its pid.
"""

import ctypes
import os
import struct
from dataclasses import dataclass

_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2
_X32_CALLS = 0x40000000

_CLONE_FILES = 0x400
_CLONE_THREAD = 0x10000
_CLONE_PARENT = 0x8000
_CLONE_NEWUSER = 0x10000000
_CLONE_SIGNAL = 0xFF
"""The bits of the signal that a process sends to its parent at its end."""
_CLOSE_RANGE_UNSHARE = 2
_PR_SET_PDEATHSIG = 1
_SIGCONT = 18
_O_ASYNC = 0x2000
_IOCTLS = (
    0x8901,  # FIOSETOWN
    0x8902,  # SIOCSPGRP
    0x5452,  # FIOASYNC
    0x5412,  # TIOCSTI
    0x541C,  # TIOCLINUX
    0x541D,  # TIOCCONS
    0x5423,  # TIOCSETD
    0x40045436,  # TIOCSIG
)
"""Requests that choose who gets the signals of a descriptor, that turn these signals on, or that send input or signals
to a terminal. `TIOCSPGRP` and `TIOCSCTTY` are allowed: they concern the caller's own session, and the supervisor is in
another one."""
_WHICH_USER = 2
"""`PRIO_USER` of setpriority. The runner and the supervisor have the same user."""
_IOPRIO_WHO_USER = 3


_COMMON = (424, 438, 440, 448, 425, 426, 427)
"""Those of the calls below that have the same number everywhere."""
CLOSE_RANGE = 436
"""Number of close_range, everywhere."""


_EPERM, _ENOSYS = 1, 38

_LOAD_WORD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_IF_SET, _RETURN, _AND = 0x20, 0x15, 0x35, 0x45, 0x06, 0x54
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER_OFFSET, _ARCHITECTURE_OFFSET, _ARGUMENTS_OFFSET = 0, 4, 16
_F_SETFL, _F_SETOWN, _F_SETSIG, _F_SETOWN_EX = 4, 8, 10, 15


class SeccompError(Exception):
    """The filter can't be installed, so no code runs."""


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """Identity of a machine architecture in seccomp, and its numbers of the calls that the filter checks."""

    audit: int
    has_x32: bool
    first: tuple[int, ...]
    """Calls whose first argument is the pid: kill, tkill, tgkill, rt_sigqueueinfo, rt_tgsigqueueinfo, pidfd_open,
    prlimit64, sched_setparam, sched_setscheduler, sched_setaffinity, sched_setattr, process_vm_readv,
    process_vm_writev, migrate_pages, move_pages."""
    setpriority: int
    ioprio_set: int
    fcntl: int
    ioctl: int
    never: tuple[int, ...]
    """Calls that are always refused: unshare, setns (namespaces); ptrace; kcmp, pidfd_send_signal, pidfd_getfd,
    process_madvise, process_mrelease (other processes by descriptor); io_uring_setup, io_uring_enter, io_uring_register
    (system calls that no filter sees); userfaultfd, perf_event_open, bpf, add_key, request_key, keyctl (parts of the
    kernel that the code does not need)."""
    kill: int
    clone: int
    prctl: int
    missing: tuple[int, ...]
    """Calls that fail with ENOSYS: shmget, semget, msgget, mq_open; timer_create and clone3, whose signal and flags a
    filter can't read: callers fall back to setitimer and clone."""


ARCHITECTURES = {
    "x86_64": Architecture(
        audit=0xC000003E,
        has_x32=True,
        first=(62, 200, 234, 129, 297, 434, 302, 142, 144, 203, 314, 310, 311, 256, 279),
        setpriority=141,
        ioprio_set=251,
        fcntl=72,
        ioctl=16,
        never=(272, 308, 101, 312, *_COMMON, 323, 298, 321, 248, 249, 250),
        kill=62,
        clone=56,
        prctl=157,
        missing=(29, 64, 68, 240, 222, 435),
    ),
    "aarch64": Architecture(
        audit=0xC00000B7,
        has_x32=False,
        first=(129, 130, 131, 138, 240, 434, 261, 118, 119, 122, 274, 270, 271, 238, 239),
        setpriority=140,
        ioprio_set=30,
        fcntl=25,
        ioctl=29,
        never=(97, 268, 117, 272, *_COMMON, 282, 241, 280, 217, 218, 219),
        kill=129,
        clone=220,
        prctl=167,
        missing=(194, 190, 186, 180, 107, 435),
    ),
}


def install_filter(supervisor: int) -> None:
    """Install the filter in this process, for it and every process that it starts.

    Raises:
        SeccompError: this machine or kernel has no such filter.
    """
    _install(assemble_filter(_find_architecture(), supervisor))


def protect_template(template: int) -> None:
    """Install a filter that refuses calls that name the template of this process, in addition to the one it has.

    Raises:
        SeccompError: this machine or kernel has no such filter.
    """
    _install(assemble_template_filter(_find_architecture(), template))


def _find_architecture() -> Architecture:
    architecture = ARCHITECTURES.get(os.uname().machine)
    if architecture is None:
        raise SeccompError(f"no filter for {os.uname().machine}")
    return architecture


def _install(program: bytes) -> None:
    code = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog: a length, padding, a pointer.
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header, 0, 0):
        raise SeccompError(os.strerror(ctypes.get_errno()))


def assemble_filter(architecture: Architecture, supervisor: int) -> bytes:
    """Return the filter as BPF instructions of eight bytes.

    Arguments are compared by their lower 32 bits: the kernel itself reads pids, commands and requests as 32 bits.
    """
    return b"".join(
        [
            *_check_machine(architecture),
            _build_instruction(_LOAD_WORD, _NUMBER_OFFSET),
            *_refuse_calls(architecture.never, _EPERM),
            *_refuse_calls(architecture.missing, _ENOSYS),
            *(part for number in architecture.first for part in _refuse_values(number, 0, (supervisor,))),
            *_refuse_values(architecture.setpriority, 1, (supervisor,)),
            *_refuse_values(architecture.setpriority, 0, (_WHICH_USER,)),
            *_refuse_values(architecture.ioprio_set, 1, (supervisor,)),
            *_refuse_values(architecture.ioprio_set, 0, (_IOPRIO_WHO_USER,)),
            *_refuse_values(architecture.ioctl, 1, _IOCTLS),
            *_refuse_values(architecture.fcntl, 1, (_F_SETOWN, _F_SETOWN_EX, _F_SETSIG)),
            *_refuse_async_flag(architecture.fcntl),
            *_refuse_flag(architecture.clone, 0, _CLONE_NEWUSER),
            *_refuse_end_signal(architecture.clone),
            *_refuse_own_files(architecture.clone),
            *_refuse_flag(CLOSE_RANGE, 2, _CLOSE_RANGE_UNSHARE),
            *_refuse_death_signal(architecture.prctl),
            _build_instruction(_RETURN, _ALLOW),
        ]
    )


def assemble_template_filter(architecture: Architecture, template: int) -> bytes:
    """Return the additional filter of a forked runner as BPF instructions.

    It refuses calls that name the template, as a process or as the process group that it leads, signals to all
    processes, and processes that would be the template's children, which it does not wait for.
    """
    return b"".join(
        [
            *_check_machine(architecture),
            _build_instruction(_LOAD_WORD, _NUMBER_OFFSET),
            *(part for number in architecture.first for part in _refuse_values(number, 0, (template,))),
            *_refuse_values(architecture.kill, 0, (_negate(template), _negate(1))),
            *_refuse_values(architecture.setpriority, 1, (template,)),
            *_refuse_values(architecture.ioprio_set, 1, (template,)),
            *_refuse_flag(architecture.clone, 0, _CLONE_PARENT),
            _build_instruction(_RETURN, _ALLOW),
        ]
    )


def _negate(number: int) -> int:
    return -number & 0xFFFFFFFF


def _check_machine(architecture: Architecture) -> list[bytes]:
    checks = [
        _build_instruction(_LOAD_WORD, _ARCHITECTURE_OFFSET),
        _build_instruction(_JUMP_EQUAL, architecture.audit, skip_if=1),
        _build_instruction(_RETURN, _ERRNO | _ENOSYS),
    ]
    if architecture.has_x32:
        checks += [
            _build_instruction(_LOAD_WORD, _NUMBER_OFFSET),
            _build_instruction(_JUMP_AT_LEAST, _X32_CALLS, skip_unless=1),
            _build_instruction(_RETURN, _ERRNO | _ENOSYS),
        ]
    return checks


def _refuse_calls(numbers: tuple[int, ...], error: int) -> list[bytes]:
    """Return instructions that refuse these calls. The accumulator holds the number of the call, before and after."""
    refuse = _build_instruction(_RETURN, _ERRNO | error)
    return [part for number in numbers for part in (_build_instruction(_JUMP_EQUAL, number, skip_unless=1), refuse)]


def _refuse_values(number: int, argument: int, refused: tuple[int, ...]) -> list[bytes]:
    """Return instructions that refuse a call if this argument has one of these values."""
    return _check_argument(number, argument, _refuse_calls(refused, _EPERM))


def _refuse_flag(number: int, argument: int, flag: int) -> list[bytes]:
    """Return instructions that refuse a call if this argument has this bit."""
    return _check_argument(number, argument, _refuse_bit(flag))


def _refuse_async_flag(fcntl: int) -> list[bytes]:
    """Return instructions that refuse `fcntl(F_SETFL)` with `O_ASYNC`, which turns signals of a descriptor on."""
    inner = [_load_argument(2), *_refuse_bit(_O_ASYNC)]
    return _check_argument(fcntl, 1, [_build_instruction(_JUMP_EQUAL, _F_SETFL, skip_unless=len(inner)), *inner])


def _refuse_end_signal(clone: int) -> list[bytes]:
    """Return instructions that refuse processes that send SIGCONT to their parent when they end."""
    signal = [_build_instruction(_AND, _CLONE_SIGNAL), *_refuse_calls((_SIGCONT,), _EPERM)]
    return _check_argument(clone, 0, signal)


def _refuse_own_files(clone: int) -> list[bytes]:
    """Return instructions that refuse threads that do not share the open files of their process."""
    is_shared = _build_instruction(_JUMP_IF_SET, _CLONE_FILES, skip_if=1)
    refuse = [is_shared, _build_instruction(_RETURN, _ERRNO | _EPERM)]
    return _check_argument(
        clone, 0, [_build_instruction(_JUMP_IF_SET, _CLONE_THREAD, skip_unless=len(refuse)), *refuse]
    )


def _refuse_death_signal(prctl: int) -> list[bytes]:
    """Return instructions that refuse `prctl(PR_SET_PDEATHSIG)` with SIGCONT."""
    inner = [_load_argument(1), *_refuse_calls((_SIGCONT,), _EPERM)]
    return _check_argument(
        prctl, 0, [_build_instruction(_JUMP_EQUAL, _PR_SET_PDEATHSIG, skip_unless=len(inner)), *inner]
    )


def _refuse_bit(flag: int) -> list[bytes]:
    return [_build_instruction(_JUMP_IF_SET, flag, skip_unless=1), _build_instruction(_RETURN, _ERRNO | _EPERM)]


def _check_argument(number: int, argument: int, checks: list[bytes]) -> list[bytes]:
    """Return instructions that run `checks` on an argument of one call, and then load the number of the call again."""
    inner = [_load_argument(argument), *checks, _build_instruction(_LOAD_WORD, _NUMBER_OFFSET)]
    return [_build_instruction(_JUMP_EQUAL, number, skip_unless=len(inner)), *inner]


def _load_argument(index: int) -> bytes:
    return _build_instruction(_LOAD_WORD, _ARGUMENTS_OFFSET + 8 * index)


def _build_instruction(code: int, operand: int, *, skip_if: int = 0, skip_unless: int = 0) -> bytes:
    return struct.pack("=HBBI", code, skip_if, skip_unless, operand)
