"""The ten examples, in each runtime, by the gateway and by `kubectl apply`: each with its exact status."""

import re
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.e2e.support import ROOT, Cluster, Gateway, condition


@dataclass(frozen=True, kw_only=True)
class Expected:
    phase: str
    reason: str = ""
    stdout: str = ""
    result: Any = None
    error: dict[str, Any] = field(default_factory=dict)
    """Fields of the error that must be so."""
    spec: dict[str, Any] = field(default_factory=dict)


EXAMPLES = {
    "hello": Expected(phase="Succeeded", stdout="Hello from a sandbox\n"),
    "filter_rows": Expected(
        phase="Succeeded",
        stdout="".join(f"{row:>5}  999\n" for row in (1321, 2321, 4321, 5321, 7321)),
        result={"rows": 10_000, "due": 60},
    ),
    "top_level_await": Expected(phase="Succeeded", stdout="[0, 1, 4, 9, 16]\n", result=144),
    "exception": Expected(
        phase="Failed",
        reason="UserError",
        stdout="before\n",
        error={"type": "ZeroDivisionError", "message": "division by zero", "line": 5},
    ),
    "infinite_loop": Expected(
        phase="TimedOut", reason="Timeout", stdout="looping\n", error={"line": 4}, spec={"timeoutSeconds": 2}
    ),
    "allocate_1gb": Expected(
        phase="Failed", reason="OutOfMemory", stdout="allocating\n", error={"type": "MemoryError", "line": 4}
    ),
    "fork_bomb": Expected(phase="Failed", reason="ProcessLimit", stdout="forking\n"),
    "print_100mb": Expected(phase="Succeeded", spec={"limits": {"outputBytes": 4096}}),
    "unicode": Expected(
        phase="Succeeded",
        stdout="Grüße, 世界, ☃, 👩‍🚀\n",
        result={"naïve": "日本語", "emoji": "🦆"},
    ),
    "last_expression": Expected(
        phase="Succeeded",
        result=[{"day": "2026-10-01", "amount": "12.50", "tags": ["travel"]}, {"user": "u-42", "big": 2**60}],
        spec={"context": {"user_id": "u-42"}},
    ),
}


def check(status: dict[str, Any], expected: Expected, *, example: str) -> None:
    output = status.get("output") or {}
    assert (status["phase"], status.get("reason", "")) == (expected.phase, expected.reason), status
    if example == "print_100mb":
        check_cut(output)
    else:
        assert output.get("stdout", "") == expected.stdout
        assert output.get("truncated", False) is False
        assert output.get("result") == expected.result
    error = status.get("error") or {}
    assert {key: error.get(key) for key in expected.error} == expected.error
    if expected.phase == "Succeeded":
        assert not error
    if error.get("traceback"):
        assert "<agent>" in error["traceback"]
        assert "mcp_exec_sandbox" not in error["traceback"]
    assert status["durations"]["total"] > 0


def check_cut(output: dict[str, Any]) -> None:
    """A hundred megabytes and a line: both ends are there, and the cut says how much is missing."""
    total = 100 * 1024 * 1024 + len("the end\n")
    assert output["stdoutBytes"] == total
    assert output["truncated"] is True
    assert output["stdout"].startswith("xxxx")
    assert output["stdout"].endswith("the end\n")
    cut = re.search(r"\n\[\.\.\. (\d+) bytes cut \.\.\.\]\n", output["stdout"])
    assert cut is not None
    kept = len(output["stdout"].encode()) - len(cut.group(0).encode())
    assert kept + int(cut.group(1)) == total
    assert kept <= 4096


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_gateway_answers_with_the_examples_exact_status(gateway: Gateway, pool: str, example: str) -> None:
    expected = EXAMPLES[example]
    code = (ROOT / "examples" / f"{example}.py").read_text()
    answer = gateway.run(code, poolRef={"name": pool}, **expected.spec)
    check(answer, expected, example=example)


@pytest.mark.parametrize("example", ["hello", "exception", "print_100mb"])
def test_kubectl_shows_the_examples_exact_status(installed: Cluster, pool: str, example: str) -> None:
    expected = EXAMPLES[example]
    code = (ROOT / "examples" / f"{example}.py").read_text()
    name = f"{example.replace('_', '-')}-{pool}"
    installed.delete("CodeExecution", name, namespace="agents")
    status = installed.execute(name=name, code=code, poolRef={"name": pool}, **expected.spec)
    check(status, expected, example=example)
    assert condition(status, "Bound")["status"] == "True"
    assert condition(status, "Finished")["reason"] in (expected.reason, expected.phase)
    row = installed.kubectl("get", "cex", name, "-n", "agents", "--no-headers").split()
    assert row[:2] == [name, expected.phase]
    assert (expected.reason or pool) in row
