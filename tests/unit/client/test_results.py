"""Results of the client: the fields of the gateway, of this version and of newer ones, and lists over their pages."""

import json
from typing import Any

import pytest
from tests.support.scripted_gateway import CREATED, execution, scripted

from mcp_exec_client import CodeExecutor, errors, types
from mcp_exec_client.agent import describe_execution
from mcp_exec_gateway.app import collect_examples


def example_of(schema: str) -> Any:
    """Return the first example of a schema in the OpenAPI document."""
    return next(iter(collect_examples()[schema].values()))["value"]


@pytest.mark.parametrize("example", [each["value"] for each in collect_examples()["Execution"].values()])
async def test_the_gateway_s_examples_are_executions(example: dict[str, Any]) -> None:
    found = await scripted(example).client().get("e1")
    assert (found.name, found.phase, found.stdout) == (
        example["name"],
        example["phase"],
        example.get("output", {}).get("stdout", ""),
    )


async def test_fields_and_reasons_of_a_newer_gateway_are_no_errors() -> None:
    newer = {"reason": "SolarFlare", "newer": 1, "output": {"stdout": "1", "artifacts": []}, "start": "Lukewarm"}
    found = await scripted(execution("Failed", **newer)).client().get("e1")
    assert (found.reason, found.start, found.stdout, found.finished) == ("SolarFlare", "Lukewarm", "1", True)


async def test_an_error_without_a_message_is_its_class_without_a_colon() -> None:
    error = {"type": "KeyboardInterrupt", "line": 1}
    found = await scripted(execution("Failed", reason="UserError", error=error)).client().run("1")
    with pytest.raises(types.ExecutionFailed, match=r"e1: Failed UserError: KeyboardInterrupt$"):
        found.raise_for_failure()
    ended = scripted(execution("Failed", reason="UserError", error=error))
    assert (await CodeExecutor(ended.client()).execute("1")).error == "KeyboardInterrupt (line 1)"


async def test_a_failure_is_raised_only_on_request_and_says_what_failed() -> None:
    error = {"type": "ZeroDivisionError", "message": "division by zero", "line": 1}
    found = await scripted(execution("Failed", reason="UserError", error=error)).client().run("1 / 0")
    assert not found.succeeded
    with pytest.raises(
        types.ExecutionFailed, match="e1: Failed UserError: ZeroDivisionError: division by zero"
    ) as caught:
        found.raise_for_failure()
    assert caught.value.outcome is found
    for phase in ("Succeeded", "Running"):
        (await scripted(execution(phase)).client().get("e1")).raise_for_failure()


def page(*items: str, more: str | None = None) -> dict[str, Any]:
    return {
        "items": [execution(name=name, createdAt=CREATED) for name in items],
        **({"continue": more} if more else {}),
    }


async def test_a_list_asks_for_pages_as_they_are_needed_and_keeps_its_filters() -> None:
    gateway = scripted(page("a", "b", more="t1"), page(more="t2"), page("c"))
    listed = gateway.client().list(phase="Failed", caller="team-a", use_case="polling", label_selector="x=y")
    assert (await anext(listed)).name == "a"
    assert len(gateway.sent) == 1
    assert [each.name async for each in listed] == ["b", "c"]
    assert [each.url.params.get("continue") for each in gateway.requests] == [None, "t1", "t2"]
    assert all(
        each.url.params["phase"] == "Failed" and each.url.params["caller"] == "team-a" for each in gateway.requests
    )


async def test_a_list_ends_at_its_limit_also_if_the_gateway_always_has_one_more_page() -> None:
    gateway = scripted(*[page("a", "b", more="again")] * 100)
    assert len([each async for each in gateway.client().list(limit=5)]) == 5
    assert len(gateway.sent) == 3


async def test_a_list_of_empty_pages_without_an_end_is_an_error() -> None:
    gateway = scripted(*[page(more="again")] * 1000)
    with pytest.raises(errors.UnexpectedResponse, match="1000 pages"):
        assert [each async for each in gateway.client().list()] == []


async def test_audit_records_have_all_fields_also_of_a_newer_gateway_s_kinds_of_calls() -> None:
    record = example_of("CallList")["items"][0] | {"durationMs": 12.5, "source": "batch", "newer": 1}
    gateway = scripted({"items": [record], "next": "n"}, {"items": [record | {"outcome": None}], "next": None})
    first, second = [each async for each in gateway.client().audit(execution="e1")]
    assert (first.server, first.outcome, first.duration_ms, first.source) == ("expenses", "ok", 12.5, "batch")
    assert second.outcome is None
    assert gateway.requests[1].url.params["cursor"] == "n"


@pytest.mark.parametrize("result", [0, False, "", []])
def test_an_agents_model_receives_every_result_that_is_one(result: Any) -> None:
    output = {"stdout": "", "stderr": "", "result": result, "truncated": False}
    told = json.loads(describe_execution(types.Execution.model_validate(execution(output=output))))
    assert told == {"phase": "Succeeded", "result": result}
    assert json.loads(describe_execution(types.Execution.model_validate(execution(output={})))) == {
        "phase": "Succeeded"
    }
