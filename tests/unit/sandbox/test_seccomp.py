"""The seccomp filter of the code, evaluated as the kernel does, on each architecture."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_exec_sandbox.runner.seccomp import (
    ARCHITECTURES,
    CLOSE_RANGE,
    assemble_filter,
    assemble_template_filter,
)

ALLOW, EPERM, ENOSYS = 0x7FFF0000, 0x00050001, 0x00050026
SUPERVISOR = 4711
SETPRIORITY, IOPRIO_SET, FCNTL, IOCTL = "setpriority", "ioprio_set", "fcntl", "ioctl"
CLONE, PRCTL = "clone", "prctl"
F_SETFL, F_GETFL, F_SETOWN, F_SETSIG, F_SETOWN_EX, F_DUPFD_CLOEXEC = 4, 3, 8, 10, 15, 1030
O_ASYNC, O_NONBLOCK = 0x2000, 0x800


def evaluate(name, number, *arguments, audit=None, template=False):
    """Return what the filter answers to a call; of a forked runner's two filters, the second, for its template."""
    architecture = ARCHITECTURES[name]
    padded = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    words = [value & (1 << 64) - 1 for value in padded]
    data = struct.pack("=IIQ6Q", number, architecture.audit if audit is None else audit, 0, *words)
    assemble = assemble_template_filter if template else assemble_filter
    program = list(struct.iter_unpack("=HBBI", assemble(architecture, SUPERVISOR)))
    accumulator, position = 0, 0
    while True:
        code, skip_if, skip_unless, operand = program[position]
        position += 1
        if code == 0x06:
            return operand
        if code == 0x20:
            accumulator = struct.unpack_from("=I", data, operand)[0]
            continue
        if code == 0x54:
            accumulator &= operand
            continue
        holds = {
            0x15: accumulator == operand,
            0x35: accumulator >= operand,
            0x45: bool(accumulator & operand),
        }[code]
        position += skip_if if holds else skip_unless


each_architecture = pytest.mark.parametrize("name", sorted(ARCHITECTURES))


@each_architecture
def test_calls_that_reach_into_other_processes_are_refused_whatever_their_arguments(name):
    for number in ARCHITECTURES[name].never:
        assert evaluate(name, number, 1, 2, 3) == EPERM
        assert evaluate(name, number) == EPERM


@each_architecture
def test_calls_that_name_the_supervisor_are_refused_and_others_are_not(name):
    architecture = ARCHITECTURES[name]
    for number in architecture.first:
        assert evaluate(name, number, SUPERVISOR) == EPERM
        assert evaluate(name, number, SUPERVISOR | 7 << 32) == EPERM
        assert evaluate(name, number, SUPERVISOR + 1, SUPERVISOR) == ALLOW
    for number in (architecture.setpriority, architecture.ioprio_set):
        assert evaluate(name, number, 0, SUPERVISOR) == EPERM
        assert evaluate(name, number, 0, SUPERVISOR + 1) == ALLOW


@each_architecture
def test_priorities_of_all_processes_of_the_user_are_refused(name):
    assert evaluate(name, ARCHITECTURES[name].setpriority, 2, 0) == EPERM
    assert evaluate(name, ARCHITECTURES[name].ioprio_set, 3, 0) == EPERM


@each_architecture
@pytest.mark.parametrize("target", [0, 1, SUPERVISOR, -1, 1 << 40])
def test_no_descriptor_gets_an_owner_or_signals(name, target):
    architecture = ARCHITECTURES[name]
    for command in (F_SETOWN, F_SETOWN_EX, F_SETSIG):
        assert evaluate(name, architecture.fcntl, 5, command, target) == EPERM
        assert evaluate(name, architecture.fcntl, 5, command | 1 << 32, target) == EPERM
    for request in (0x8901, 0x8902, 0x5452, 0x5412, 0x40045436):
        assert evaluate(name, architecture.ioctl, 5, request, target) == EPERM
        assert evaluate(name, architecture.ioctl, 5, request | 0xFFFF << 32, target) == EPERM


@each_architecture
def test_descriptors_are_made_asynchronous_by_no_flag(name):
    fcntl = ARCHITECTURES[name].fcntl
    assert evaluate(name, fcntl, 5, F_SETFL, O_ASYNC) == EPERM
    assert evaluate(name, fcntl, 5, F_SETFL, O_ASYNC | O_NONBLOCK) == EPERM
    assert evaluate(name, fcntl, 5, F_SETFL, O_NONBLOCK) == ALLOW
    assert evaluate(name, fcntl, 5, F_DUPFD_CLOEXEC, O_ASYNC) == ALLOW
    assert evaluate(name, fcntl, 5, F_GETFL) == ALLOW


@each_architecture
@pytest.mark.parametrize("request_code", [0x5401, 0x540E, 0x5410, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451])
def test_ordinary_requests_to_terminals_and_files_are_allowed(name, request_code):
    """TCGETS, TIOCSCTTY, TIOCSPGRP, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX."""
    assert evaluate(name, ARCHITECTURES[name].ioctl, 1, request_code) == ALLOW


@each_architecture
def test_calls_of_a_forked_runner_reach_neither_its_template_nor_all_processes(name):
    architecture = ARCHITECTURES[name]
    for number in architecture.first:
        assert evaluate(name, number, SUPERVISOR, template=True) == EPERM
        assert evaluate(name, number, SUPERVISOR + 1, template=True) == ALLOW
    for target in (-SUPERVISOR, -1):
        assert evaluate(name, architecture.kill, target, 9, template=True) == EPERM
    for target in (0, -SUPERVISOR - 1):
        assert evaluate(name, architecture.kill, target, 9, template=True) == ALLOW
    for number in (architecture.setpriority, architecture.ioprio_set):
        assert evaluate(name, number, 0, SUPERVISOR, template=True) == EPERM
    assert evaluate(name, architecture.clone, 0x8000 | 17, template=True) == EPERM
    assert evaluate(name, architecture.clone, 0x003D0F00, template=True) == ALLOW
    assert evaluate(name, 1, audit=0x40000003, template=True) == ENOSYS


@each_architecture
def test_no_process_is_made_in_a_new_user_namespace(name):
    architecture = ARCHITECTURES[name]
    assert evaluate(name, architecture.clone, 0x10000000 | 17) == EPERM
    assert evaluate(name, architecture.clone, 0x003D0F00) == ALLOW


@each_architecture
@pytest.mark.parametrize("upper", [0, 1 << 32])
def test_the_kernel_sends_nobody_a_signal_that_lets_stopped_code_go_on(name, upper):
    """SIGCONT (18) by a timer, by the end of a child or by the end of a parent."""
    architecture = ARCHITECTURES[name]
    assert evaluate(name, {"x86_64": 222, "aarch64": 107}[name], 1, 2, 3) == ENOSYS
    assert evaluate(name, architecture.clone, 18 | upper) == EPERM
    assert evaluate(name, architecture.clone, 0x01200000 | 18 | upper) == EPERM
    assert evaluate(name, architecture.clone, 0x01200000 | 17 | upper) == ALLOW
    assert evaluate(name, architecture.prctl, 1 | upper, 18 | upper) == EPERM
    assert evaluate(name, architecture.prctl, 1, 9) == ALLOW
    assert evaluate(name, architecture.prctl, 15, 18) == ALLOW


@each_architecture
def test_threads_share_the_open_files_of_their_process(name):
    architecture = ARCHITECTURES[name]
    assert evaluate(name, architecture.clone, 0x00010900) == EPERM
    assert evaluate(name, architecture.clone, 0x003D0F00) == ALLOW, "pthread_create"
    assert evaluate(name, architecture.clone, 0x4111) == ALLOW, "vfork"
    assert evaluate(name, CLOSE_RANGE, 3, 1 << 31, 2) == EPERM
    assert evaluate(name, CLOSE_RANGE, 3, 1 << 31, 6) == EPERM
    assert evaluate(name, CLOSE_RANGE, 3, 1 << 31, 4) == ALLOW


@each_architecture
def test_what_outlives_processes_can_not_be_made(name):
    """Shared memory, semaphores and queues of System V, queues of POSIX; and clone3, whose flags can't be checked."""
    for number in ARCHITECTURES[name].missing:
        assert evaluate(name, number, 1, 2, 3) == ENOSYS


@each_architecture
def test_calls_by_the_numbers_of_another_architecture_do_not_exist(name):
    assert evaluate(name, 1, audit=0x40000003) == ENOSYS
    if ARCHITECTURES[name].has_x32:
        assert evaluate(name, 1 | 0x40000000) == ENOSYS


@each_architecture
@given(st.integers(0, 600), st.lists(st.integers(100_000, 1 << 40), min_size=6, max_size=6))
def test_the_filter_ends_for_every_call_and_refuses_no_other(name, number, arguments):
    architecture = ARCHITECTURES[name]
    checked = {
        *architecture.never,
        *architecture.first,
        *architecture.missing,
        CLOSE_RANGE,
        *(getattr(architecture, each) for each in (SETPRIORITY, IOPRIO_SET, FCNTL, IOCTL, CLONE, PRCTL)),
    }
    answer = evaluate(name, number, *arguments)
    assert answer in (ALLOW, EPERM, ENOSYS)
    assert answer == ALLOW or number in checked
