"""The supervisor's decisions and readings, each by itself."""

import asyncio
import os
import struct
from pathlib import Path

import pytest

from mcp_exec_sandbox.protocol import RunnerLimits
from mcp_exec_sandbox.runner.report import find_limit
from mcp_exec_sandbox.runner.seccomp import ARCHITECTURES, assemble_filter
from mcp_exec_sandbox.supervisor.execution.outcome import (
    InterruptLocation,
    RunnerReport,
    SupervisorDecision,
    decide_outcome,
)
from mcp_exec_sandbox.supervisor.execution.spawning import build_runner_environment
from mcp_exec_sandbox.supervisor.execution.watchdog import compute_runner_memory
from mcp_exec_sandbox.supervisor.json_object import parse_object
from mcp_exec_sandbox.supervisor.resources.processes import Process, TaskCounter, list_descendants
from mcp_exec_sandbox.supervisor.resources.usage import (
    THREAD_VARIABLES,
    CgroupGauge,
    GvisorGauge,
    ProcessGauge,
    build_cpu_variables,
    find_gauge,
    measure_storage,
)
from mcp_exec_sandbox.supervisor.settings import SandboxSettingsError, Settings

MIB = 1024 * 1024
LARGEST_PID = 1 << 22
DIGEST = {"MCP_EXEC_TOKEN_SHA256": "0" * 64}


def test_settings_have_the_defaults_of_the_product():
    settings = Settings.from_environment(DIGEST)
    assert (settings.port, settings.max_processes, settings.memory_bytes) == (8700, 64, 512 * MIB)
    assert (settings.workspace, settings.temporary) == (Path("/workspace"), Path("/tmp"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOKEN_SHA256", "short"),
        ("TOKEN_SHA256", "A" * 64),
        ("PORT", "70000"),
        ("PORT", "-1"),
        ("MEMORY_BYTES", "1"),
        ("MAX_PROCESSES", "0"),
        ("STORAGE_BYTES", "1e9"),
        ("WORKSPACE", "relative"),
        ("TYPO", "1"),
        ("PREIMPORT", "a b"),
        ("PREIMPORT", "../x"),
        ("PREIMPORT", "a." + "b" * 100),
        ("PREIMPORT", ",".join(f"m{number}" for number in range(33))),
    ],
)
def test_a_bad_setting_is_refused_by_its_name(name, value):
    with pytest.raises(SandboxSettingsError, match=f"MCP_EXEC_{name}"):
        Settings.from_environment({**DIGEST, f"MCP_EXEC_{name}": value})


def test_a_token_digest_is_required():
    with pytest.raises(SandboxSettingsError, match="MCP_EXEC_TOKEN_SHA256"):
        Settings.from_environment({})


def test_limits_pass_to_the_runner_unchanged():
    limits = RunnerLimits(memory_bytes=1, max_tasks=2, storage_bytes=3)
    assert RunnerLimits.from_argument(limits.to_argument()) == limits


@pytest.mark.parametrize("limit", [64 * MIB, 512 * MIB, 64 * 1024 * MIB])
def test_a_process_has_less_memory_than_the_container(limit):
    assert limit // 2 <= compute_runner_memory(limit) < limit


def test_the_codes_environment_is_the_containers_without_ours():
    environment = {
        "MCP_EXEC_PORT": "1",
        "KUBERNETES_PORT": "x",
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHON_CPU_COUNT": "2",
    }
    defaults = {
        "MALLOC_ARENA_MAX": "2",
        "MPLBACKEND": "module://mcp_exec_sandbox.tools.display.matplotlib_backend",
        "XDG_CACHE_HOME": "/t/.cache",
    }
    processors = {"PYTHON_CPU_COUNT": "2"} | dict.fromkeys(THREAD_VARIABLES, "2") | {"OMP_NUM_THREADS": "1"}
    expected = {**defaults, **processors, "HOME": "/h", "TMPDIR": "/t", "PYTHONUTF8": "1"}
    assert build_runner_environment(environment, home="/h", temporary="/t") == expected


@pytest.mark.parametrize(
    ("files", "number"),
    [
        ({"cpu.max": "150000 100000\n"}, "2"),
        ({"cpu.max": "10000 100000\n"}, "1"),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"}, "4"),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({}, None),
    ],
)
def test_the_number_of_processors_is_that_of_the_quota_unless_it_is_given(tmp_path, files, number):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert build_cpu_variables({}, cgroup_root=tmp_path).get("POLARS_MAX_THREADS") == number
    given = build_cpu_variables({"PYTHON_CPU_COUNT": "7", "OMP_NUM_THREADS": "3"}, cgroup_root=tmp_path)
    assert (given["RAYON_NUM_THREADS"], given["OMP_NUM_THREADS"]) == ("7", "3")


@pytest.mark.parametrize(
    "text", [b"", b"5", b"[]", b'{"a": NaN}', b"\xff", b"{" * 100_000, b'{"a": 1' + b"0" * 5000 + b"}"]
)
def test_what_is_no_json_object_is_none(text):
    assert parse_object(text) is None


REPORT = RunnerReport.from_message({"type": "done"})
ERROR = {"type": "ValueError", "message": "m", "line": 1, "traceback": "t"}


LIMITS = {"memory": "512 MiB", "processes": "64 processes", "storage": "256 MiB of files"}


def outcome(message=None, *, decision=None, runner_exit=None, kernel_kill=False):
    report = None if message is None else RunnerReport.from_message(message)
    result = decide_outcome(
        decision=decision,
        report=report,
        ended_late=False,
        runner_exit=runner_exit,
        kernel_kill=kernel_kill,
        interruption=InterruptLocation(),
        limits=LIMITS,
    )
    return result.phase, result.reason, result.exit_code


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"message": {}}, ("Succeeded", "", None)),
        ({"message": {"exitCode": 0}}, ("Succeeded", "", 0)),
        ({"message": {"exitCode": 3}}, ("Failed", "ExitCode", 3)),
        ({"message": {"error": ERROR}}, ("Failed", "UserError", None)),
        ({"message": {"error": ERROR, "limit": "memory"}}, ("Failed", "OutOfMemory", None)),
        ({"message": {"error": ERROR, "limit": "storage"}}, ("Failed", "StorageLimit", None)),
        ({"message": {"error": ERROR, "limit": "processes"}}, ("Failed", "ProcessLimit", None)),
        ({"message": {"error": ERROR, "limit": "time"}}, ("Failed", "UserError", None)),
        ({"message": {"error": ERROR}, "kernel_kill": True}, ("Failed", "OutOfMemory", None)),
        ({"message": {}, "kernel_kill": True}, ("Succeeded", "", None)),
        ({"runner_exit": 0}, ("Failed", "RunnerDied", 0)),
        ({"runner_exit": -11}, ("Failed", "RunnerDied", 139)),
        ({"runner_exit": -9}, ("Failed", "RunnerDied", 137)),
        ({"runner_exit": -9, "kernel_kill": True}, ("Failed", "OutOfMemory", None)),
        ({"runner_exit": -25}, ("Failed", "StorageLimit", None)),
        ({"runner_exit": -40}, ("Failed", "RunnerDied", 168)),
        ({}, ("Failed", "RunnerDied", None)),
    ],
)
def test_the_outcome_follows_from_report_and_exit(arguments, expected):
    assert outcome(**arguments) == expected


def test_the_supervisors_decision_stands_above_the_report():
    decision = SupervisorDecision(phase="TimedOut", reason="Timeout", message="m")
    assert outcome({"exitCode": 0}, decision=decision, runner_exit=0) == ("TimedOut", "Timeout", None)


@pytest.mark.parametrize(
    ("error", "limit"),
    [
        (MemoryError(), "memory"),
        (OSError(28, "x"), "storage"),
        (OSError(27, "x"), "storage"),
        (OSError(122, "x"), "storage"),
        (OSError(12, "x"), "memory"),
        (OSError(2, "x"), None),
        (BlockingIOError(11, "x"), None),
        (RuntimeError("can't start new thread"), "processes"),
        (ValueError("x"), None),
        (ExceptionGroup("g", [ValueError(), MemoryError()]), "memory"),
    ],
)
def test_an_exception_tells_the_limit_behind_it(error, limit):
    assert find_limit(error) == limit


def write(root, **files):
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_memory_is_read_from_a_cgroup_of_version_2(tmp_path):
    write(
        tmp_path,
        memory_DOT_max="1048576\n",
        memory_DOT_current="700\n",
        memory_DOT_stat="anon 5\ninactive_file 100\n",
        memory_DOT_events="low 0\noom 2\noom_kill 1\n",
    )
    gauge = find_gauge(1048576, cgroup_root=tmp_path)
    assert isinstance(gauge, CgroupGauge)
    assert (gauge.read_used_bytes(list), gauge.count_kernel_kills()) == (600, 1)


def test_memory_is_read_from_a_cgroup_of_version_1(tmp_path):
    write(
        tmp_path,
        memory__memory_DOT_limit_in_bytes="1048576\n",
        memory__memory_DOT_usage_in_bytes="700\n",
        memory__memory_DOT_stat="inactive_file 5\ntotal_inactive_file 100\n",
        memory__memory_DOT_oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
    )
    gauge = find_gauge(1048576, cgroup_root=tmp_path)
    assert (gauge.read_used_bytes(list), gauge.count_kernel_kills()) == (600, 3)


def test_memory_is_read_from_gvisors_account_if_that_is_the_containers(tmp_path):
    write(tmp_path, meminfo="MemTotal:         524288 kB\nMemFree:  1 kB\nMemAvailable:     479456 kB\n")
    gauge = find_gauge(512 * MIB, cgroup_root=tmp_path / "none", proc_root=tmp_path)
    assert isinstance(gauge, GvisorGauge)
    assert gauge.read_used_bytes(list) == (524288 - 479456) * 1024


def test_memory_of_a_whole_machine_is_nobodys(tmp_path):
    write(tmp_path, memory_DOT_max="max\n", memory__memory_DOT_limit_in_bytes="9223372036854771712\n")
    gauge = find_gauge(512 * MIB, cgroup_root=tmp_path)
    assert isinstance(gauge, ProcessGauge)
    own = Process(pid=os.getpid(), parent=1, threads=1, resident_bytes=0)
    assert gauge.read_used_bytes(lambda: [own]) > MIB


def test_tasks_are_read_from_the_cgroup_of_pid_1_only(tmp_path):
    write(tmp_path, pids__pids_DOT_current="12\n")
    assert TaskCounter(supervisor=1, cgroup_root=tmp_path).count() == 11
    assert TaskCounter(supervisor=os.getpid(), cgroup_root=tmp_path).count() == len(list_descendants(os.getpid()))


async def test_storage_counts_files_once_and_stops_beyond_enough(tmp_path):
    write(tmp_path, a="x" * 100_000, sub__b="y" * 100_000)
    (tmp_path / "again").hardlink_to(tmp_path / "a")
    (tmp_path / "loop").symlink_to(tmp_path)
    size = await measure_storage([tmp_path], [], enough=10 * MIB)
    assert 200_000 <= size < 250_000
    assert 50_000 < await measure_storage([tmp_path], [], enough=50_000) <= size


def test_storage_counts_deleted_files_that_are_open(tmp_path):
    with open(tmp_path / "gone", "wb") as file:
        file.write(bytes(b"x" * 100_000))
        file.flush()
        (tmp_path / "gone").unlink()
        assert asyncio.run(measure_storage([], [f"/proc/{os.getpid()}"], enough=10 * MIB)) >= 100_000


async def test_too_many_files_are_too_much(tmp_path, monkeypatch):
    monkeypatch.setattr("mcp_exec_sandbox.supervisor.resources.usage.MAX_ENTRIES", 5)
    for number in range(10):
        (tmp_path / str(number)).touch()
    assert await measure_storage([tmp_path], [], enough=MIB) > MIB


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_filters_jumps_stay_inside_it(name):
    program = assemble_filter(ARCHITECTURES[name], 1)
    instructions = list(struct.iter_unpack("=HBBI", program))
    assert len(instructions) < 4096
    assert instructions[-1] == (0x06, 0, 0, 0x7FFF0000)
    for position, (_, skip_if, skip_unless, _) in enumerate(instructions):
        assert position + 1 + max(skip_if, skip_unless) < len(instructions) or position == len(instructions) - 1


def test_a_process_that_ended_while_memory_was_counted_takes_none():
    process = Process(pid=LARGEST_PID + 1, parent=os.getpid(), threads=1, resident_bytes=100 << 20)
    assert ProcessGauge(limit=1 << 30).read_used_bytes(lambda: [process]) == 0


async def test_open_files_of_the_code_do_not_hold_up_the_event_loop(tmp_path):
    """Every descriptor costs time, also one that takes no storage."""
    turns = 0

    async def count_turns():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counter = asyncio.create_task(count_turns())
    await measure_storage([tmp_path], [f"/proc/{os.getpid()}"] * 500, enough=1 << 40)
    counter.cancel()
    assert turns > 5
