"""Seccomp filter that denies the code access to the supervisor and to namespaces, permanently and for all children.

The filter refuses system calls that name the supervisor's pid. Both processes run as the same user, so without it the
code could signal the supervisor or lower its limits. Linux protects PID 1 from signals (not from limits), gVisor
doesn't. The filter also refuses new namespaces: in its own user namespace the code would have every capability. The
container's default profile prevents that on Linux, and nothing does in gVisor. A seccomp filter needs no rights
besides `no_new_privs`.
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
    process_vm_writev."""
    second: tuple[int, ...]
    """Calls whose second argument is the pid: setpriority, ioprio_set, ptrace."""
    fcntl: int
    namespaces: tuple[int, ...]
    """Calls that only create or enter namespaces: unshare, setns."""
    clone: int
    clone3: int
    """A filter can't read its flags, so it fails with ENOSYS, and callers fall back to clone."""


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


def install_filter(supervisor: int) -> None:
    """Install the filter in this process, for it and every process that it starts.

    Raises:
        SeccompError: this machine or kernel has no such filter.
    """
    architecture = ARCHITECTURES.get(platform.machine())
    if architecture is None:
        raise SeccompError(f"no filter for {platform.machine()}")
    program = assemble_filter(architecture, supervisor)
    code = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog: a length, padding, a pointer.
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header, 0, 0):
        raise SeccompError(os.strerror(ctypes.get_errno()))


def assemble_filter(architecture: Architecture, supervisor: int) -> bytes:
    """Return the filter as BPF instructions of eight bytes."""
    rules = [(number, ((0, supervisor),)) for number in architecture.first]
    rules += [(number, ((1, supervisor),)) for number in architecture.second]
    # The owner of a file descriptor gets its signals.
    conditions = [((1, _F_SETOWN), (2, supervisor)), ((1, _F_SETOWN_EX),)]
    program = [
        _build_instruction(_LOAD_WORD, _ARCHITECTURE_OFFSET),
        _build_instruction(_JUMP_EQUAL, architecture.audit, skip_if=1),
        _build_instruction(_RETURN, _ERRNO | _ENOSYS),
    ]
    if architecture.has_x32:
        program += [
            _build_instruction(_LOAD_WORD, _NUMBER_OFFSET),
            _build_instruction(_JUMP_AT_LEAST, _X32_CALLS, skip_unless=1),
            _build_instruction(_RETURN, _ERRNO | _ENOSYS),
        ]
    for number, arguments in [*rules, *((architecture.fcntl, condition) for condition in conditions)]:
        program += _build_rule(number, arguments)
    for number in architecture.namespaces:
        program += _build_rule(number, ())
    program += [
        _build_instruction(_LOAD_WORD, _NUMBER_OFFSET),
        _build_instruction(_JUMP_EQUAL, architecture.clone3, skip_unless=1),
        _build_instruction(_RETURN, _ERRNO | _ENOSYS),
        _build_instruction(_JUMP_EQUAL, architecture.clone, skip_unless=3),
        _build_instruction(_LOAD_WORD, _ARGUMENTS_OFFSET),
        _build_instruction(_JUMP_IF_SET, _CLONE_NEWUSER, skip_unless=1),
        _build_instruction(_RETURN, _ERRNO | _EPERM),
    ]
    return b"".join([*program, _build_instruction(_RETURN, _ALLOW)])


def _build_rule(number: int, arguments: tuple[tuple[int, int], ...]) -> list[bytes]:
    """Return instructions that refuse a call if these arguments have these values (32 bits), else skip the rule."""
    tests = [(_NUMBER_OFFSET, number), *((_ARGUMENTS_OFFSET + 8 * index, value) for index, value in arguments)]
    program = []
    for position, (offset, value) in enumerate(tests):
        skipped = 2 * (len(tests) - position - 1) + 1
        program += [_build_instruction(_LOAD_WORD, offset), _build_instruction(_JUMP_EQUAL, value, skip_unless=skipped)]
    return [*program, _build_instruction(_RETURN, _ERRNO | _EPERM)]


def _build_instruction(code: int, operand: int, *, skip_if: int = 0, skip_unless: int = 0) -> bytes:
    return struct.pack("=HBBI", code, skip_if, skip_unless, operand)
