"""Keeps the code's hands off the supervisor and off namespaces, for good and for all children.

System calls that name the supervisor's pid are refused: both run as the same user, so the kernel alone would let one
signal the other or lower its limits. Linux spares PID 1 the signals (not the limits), gVisor doesn't. New namespaces
are refused too: in a user namespace of its own the code would have every capability, which the container's default
profile prevents on Linux and nothing does in gVisor. A seccomp filter needs no rights beyond `no_new_privs`.
"""

import ctypes
import os
import platform
import struct
from dataclasses import dataclass

_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2
_EPERM, _ENOSYS = 1, 38

_LOAD_WORD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_IF_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER_OFFSET, _ARCHITECTURE_OFFSET, _ARGUMENTS_OFFSET = 0, 4, 16
_X32_CALLS = 0x40000000

_F_SETOWN, _F_SETOWN_EX = 8, 15
_CLONE_NEWUSER = 0x10000000


class ShieldError(Exception):
    """The filter can't be installed, so no code may run."""


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """A machine's identity in seccomp and its numbers of the calls that take a pid."""

    audit: int
    has_x32: bool
    first: tuple[int, ...]
    """Calls whose first argument is the pid: kill, tkill, tgkill, rt_sigqueueinfo, rt_tgsigqueueinfo, pidfd_open,
    prlimit64, sched_setparam, sched_setscheduler, sched_setaffinity, sched_setattr, process_vm_readv,
    process_vm_writev."""
    second: tuple[int, ...]
    """Calls whose second argument is the pid: setpriority, ioprio_set, ptrace."""
    fcntl: int
    namespaces: tuple[int, ...]
    """Calls that make or enter namespaces alone: unshare, setns."""
    clone: int
    clone3: int
    """Its flags are out of a filter's sight, so it is said not to exist, and callers fall back to clone."""


ARCHITECTURES = {
    "x86_64": Architecture(
        audit=0xC000003E,
        has_x32=True,
        first=(62, 200, 234, 129, 297, 434, 302, 142, 144, 203, 314, 310, 311),
        second=(141, 251, 101),
        fcntl=72,
        namespaces=(272, 308),
        clone=56,
        clone3=435,
    ),
    "aarch64": Architecture(
        audit=0xC00000B7,
        has_x32=False,
        first=(129, 130, 131, 138, 240, 434, 261, 118, 119, 122, 274, 270, 271),
        second=(140, 30, 117),
        fcntl=25,
        namespaces=(97, 268),
        clone=220,
        clone3=435,
    ),
}


def install(supervisor: int) -> None:
    """Refuse calls that name the supervisor, in this process and all that it starts.

    Raises:
        ShieldError: this machine or kernel has no such filter.
    """
    architecture = ARCHITECTURES.get(platform.machine())
    if architecture is None:
        raise ShieldError(f"no filter for {platform.machine()}")
    program = assemble(architecture, supervisor)
    code = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog: a length, padding, a pointer.
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header, 0, 0):
        raise ShieldError(os.strerror(ctypes.get_errno()))


def assemble(architecture: Architecture, supervisor: int) -> bytes:
    """The filter as BPF instructions of eight bytes."""
    rules = [(number, ((0, supervisor),)) for number in architecture.first]
    rules += [(number, ((1, supervisor),)) for number in architecture.second]
    # A file descriptor's owner gets its signals.
    conditions = [((1, _F_SETOWN), (2, supervisor)), ((1, _F_SETOWN_EX),)]
    program = [
        _instruction(_LOAD_WORD, _ARCHITECTURE_OFFSET),
        _instruction(_JUMP_EQUAL, architecture.audit, skip_if=1),
        _instruction(_RETURN, _ERRNO | _ENOSYS),
    ]
    if architecture.has_x32:
        program += [
            _instruction(_LOAD_WORD, _NUMBER_OFFSET),
            _instruction(_JUMP_AT_LEAST, _X32_CALLS, skip_unless=1),
            _instruction(_RETURN, _ERRNO | _ENOSYS),
        ]
    for number, arguments in [*rules, *((architecture.fcntl, each) for each in conditions)]:
        program += _rule(number, arguments)
    for number in architecture.namespaces:
        program += _rule(number, ())
    program += [
        _instruction(_LOAD_WORD, _NUMBER_OFFSET),
        _instruction(_JUMP_EQUAL, architecture.clone3, skip_unless=1),
        _instruction(_RETURN, _ERRNO | _ENOSYS),
        _instruction(_JUMP_EQUAL, architecture.clone, skip_unless=3),
        _instruction(_LOAD_WORD, _ARGUMENTS_OFFSET),
        _instruction(_JUMP_IF_SET, _CLONE_NEWUSER, skip_unless=1),
        _instruction(_RETURN, _ERRNO | _EPERM),
    ]
    return b"".join([*program, _instruction(_RETURN, _ALLOW)])


def _rule(number: int, arguments: tuple[tuple[int, int], ...]) -> list[bytes]:
    """Refuse one call if all of its arguments have these values (of 32 bits), else go on behind the rule."""
    tests = [(_NUMBER_OFFSET, number), *((_ARGUMENTS_OFFSET + 8 * index, value) for index, value in arguments)]
    program = []
    for position, (offset, value) in enumerate(tests):
        left = 2 * (len(tests) - position - 1) + 1
        program += [_instruction(_LOAD_WORD, offset), _instruction(_JUMP_EQUAL, value, skip_unless=left)]
    return [*program, _instruction(_RETURN, _ERRNO | _EPERM)]


def _instruction(code: int, operand: int, *, skip_if: int = 0, skip_unless: int = 0) -> bytes:
    return struct.pack("=HBBI", code, skip_if, skip_unless, operand)
