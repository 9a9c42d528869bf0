"""The code executor: both forms of its call, and how limits choose a pool."""

import json
from typing import Any

import pytest
from tests.support.scripted_gateway import execution, pool, problem, scripted, stats

from mcp_exec_client import executor
from mcp_exec_client.executor import CodeExecutor, LimitsNotOffered, parse_memory

GIBIBYTE = 2**30


def offered(name: str, memory: int | None, cpus: float | None, seconds: int = 300) -> dict[str, Any]:
    return pool(name, memoryBytes=memory, cpus=cpus, maxTimeoutSeconds=seconds)


STATS = stats(
    [
        offered("broken", None, None),
        offered("default", GIBIBYTE // 2, 1.0),
        offered("large", 4 * GIBIBYTE, 2.0, 60),
        offered("wide", 4 * GIBIBYTE, 4.0),
    ]
)
QUICK = execution(output={"stdout": "", "result": 6}, durations={"run": 0.31})
DONE = execution(output={"stdout": "4\n", "result": 4}, durations={"run": 12.6})


async def test_code_is_executed_with_its_context_and_the_result_reads_like_a_dictionary() -> None:
    gateway = scripted(DONE)
    result = await CodeExecutor(gateway.client()).execute("print(2 * n)", {"n": 2})
    assert (result.success, result.output, result.error, result.execution_time_ms) == (True, "4\n", None, 13)
    assert [result[name] for name in ("success", "output", "error", "execution_time_ms")] == [True, "4\n", None, 13]
    assert (result.result, result.execution and result.execution.name) == (4, "e1")
    with pytest.raises(KeyError):
        result["stdout"]
    assert json.loads(gateway.requests[0].content) == {
        "code": "print(2 * n)",
        "context": {"n": 2},
        "timeoutSeconds": 30,
    }


async def test_a_run_that_took_place_took_a_millisecond_or_more() -> None:
    result = await CodeExecutor(scripted(QUICK).client()).execute("2 * 3")
    assert (result.result, result.execution_time_ms) == (6, 1)


@pytest.mark.parametrize(
    ("limits", "wanted"),
    [
        ({"memory_limit": "8Gi"}, "no pool offers 8192Mi of memory, 0 CPUs and 30 s"),
        ({"cpu_limit": "5"}, "no pool offers 0Mi of memory, 5 CPUs and 30 s"),
        ({"cpu_limit": 1.5, "timeout": 400}, "no pool offers 0Mi of memory, 1.5 CPUs and 400 s"),
        ({"memory_limit": "1G", "pool": "default"}, "pool default does not offer 1000000000 bytes of memory"),
    ],
)
async def test_limits_that_no_pool_offers_are_refused_with_what_is_offered(limits: Any, wanted: str) -> None:
    gateway = scripted(STATS)
    with pytest.raises(LimitsNotOffered, match=wanted) as caught:
        await CodeExecutor(gateway.client()).execute("1", **limits)
    offered = (
        "broken (unknown memory, unknown CPUs, 300 s); default (512Mi, 1 CPUs, 300 s); large (4096Mi, 2 CPUs, 60 s)"
    )
    assert offered in str(caught.value)
    assert len(gateway.sent) == 1


async def test_a_failure_of_the_code_is_a_result() -> None:
    error = {"type": "ZeroDivisionError", "message": "division by zero", "line": 3}
    refused = problem(422, "code-refused", "pool default rejects the code: line 1: eval")
    gateway = scripted(execution("Failed", error=error), execution("TimedOut", reason="TimeLimit"), refused)
    runs = CodeExecutor(gateway.client())
    found = [(await runs.execute("1")).error for _ in range(3)]
    assert found == [
        "ZeroDivisionError: division by zero (line 3)",
        "TimedOut TimeLimit",
        "pool default rejects the code: line 1: eval",
    ]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512M", 512_000_000),
        ("512Mi", 2**29),
        ("1g", 10**9),
        ("1.5GiB", 3 * 2**29),
        ("100", 100),
        (7, 7),
        ("2 kB", 2000),
    ],
)
def test_memory_is_read_as_people_write_it(text: str | int, size: int) -> None:
    assert parse_memory(text) == size


async def test_options_of_other_functions_are_refused() -> None:
    for option in ({"timeout_seconds": 3}, {"memory": "1G"}):
        with pytest.raises(TypeError, match="unknown option"):
            await CodeExecutor(scripted().client()).execute("1", **option)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "much", "-1", "1e9", "9" * 100_000, "1.M", "٣M"])
def test_text_that_is_no_amount_of_memory_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="examples are 512M and 1Gi"):
        parse_memory(text)


async def test_without_a_client_each_call_opens_one_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = scripted(DONE)
    monkeypatch.setattr(executor, "AsyncClient", gateway.client)
    assert (await CodeExecutor().execute("1"))["success"]
    monkeypatch.undo()
    monkeypatch.delenv("MCP_EXEC_GATEWAY", raising=False)
    with pytest.raises(ValueError, match=r"\$MCP_EXEC_GATEWAY"):
        await CodeExecutor().execute("1")
