"""Messages about invalid fields: they name what is allowed."""

import json
import re
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from mcp_exec_api.code_execution import CodeExecutionSpec
from mcp_exec_api.crd_schema import build_definitions
from mcp_exec_api.meta import MAX_FIELD_ERRORS, PATTERN_WORDS, explain_errors, field_errors
from mcp_exec_api.sandbox_pool import SandboxPoolSpec
from mcp_exec_api.tool_server import ToolServerSpec
from mcp_exec_api.wire.executions import NewExecution


def errors(model: type[BaseModel], value: dict[str, Any], *hidden: str) -> dict[str, str]:
    with pytest.raises(ValidationError) as caught:
        model.model_validate(value, by_name=False, by_alias=True)
    return {error.field: error.message for error in field_errors(caught.value, model, hidden=hidden)}


WHOLE: list[tuple[type[BaseModel], dict[str, Any], str]] = [
    (ToolServerSpec, {}, "exactly one of url and stdio must be set"),
    (SandboxPoolSpec, {"image": "i", "maxPods": 1, "warm": {"min": 0, "max": 2}}, "warm.max is 2"),
]


@pytest.mark.parametrize(("model", "given", "said"), WHOLE)
def test_an_error_of_the_whole_input_names_no_field_and_no_part_of_the_parser(
    model: type[BaseModel], given: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        model.model_validate(given)
    assert explain_errors(caught.value, model).startswith(said)
    assert explain_errors(caught.value, model, place="spec").startswith(f"spec: {said}")


def test_an_error_of_a_field_has_its_path_below_a_place() -> None:
    with pytest.raises(ValidationError) as caught:
        CodeExecutionSpec.model_validate({"code": "1", "timeoutSeconds": "x"})
    assert explain_errors(caught.value, CodeExecutionSpec, place="spec").startswith("spec.timeoutSeconds: ")
    assert "Value error" not in explain_errors(caught.value)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("pool", "poolRef.name"),
        ("timeout", "timeoutSeconds"),
        ("timeout_seconds", "timeoutSeconds"),
        ("ttl", "ttlSecondsAfterFinished"),
        ("contxt", "context"),
        ("outputBytes", "limits.outputBytes"),
        ("TOOLS", "tools"),
    ],
)
def test_an_unknown_field_names_the_one_that_was_meant_and_all_allowed_ones(given: str, meant: str) -> None:
    (message,) = errors(NewExecution, {"code": "1", given: "x"}).values()
    assert message.startswith(f"unknown field; did you mean {meant}? Allowed: ")
    assert {"code", "context", "poolRef", "tools", "timeoutSeconds"} <= set(re.split(r"[ ,]+", message))


def test_a_field_of_a_field_is_looked_for_there_and_hidden_ones_are_not_named() -> None:
    found = errors(CodeExecutionSpec, {"code": "1", "limits": {"outputbyte": 1}, "dialect": 1}, "approvals")
    assert found["limits.outputbyte"].startswith("unknown field; did you mean outputBytes?")
    assert found["dialect"].startswith("unknown field; allowed: ")
    assert "approvals" not in found["dialect"]
    tolerations = errors(SandboxPoolSpec, {"image": "i", "tolerations": [{"key": "a", "EFFECT": "NoExecute"}]})
    assert tolerations["tolerations.0.EFFECT"].startswith("unknown field; did you mean effect?")


def test_a_pattern_is_explained_in_words() -> None:
    found = errors(CodeExecutionSpec, {"code": "1", "tools": ["no dot"], "poolRef": {"name": "No Name"}})
    assert found["tools.0"].startswith("it must be SERVER.TOOL, each with an optional * at its end")
    assert found["poolRef.name"].startswith("it must be lower-case letters, digits and '-'")


def patterns(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return set().union(*map(patterns, schema))
    if not isinstance(schema, dict):
        return set()
    own = {schema["pattern"]} if isinstance(schema.get("pattern"), str) else set()
    return own.union(*map(patterns, schema.values()))


def test_each_pattern_of_the_types_has_words() -> None:
    known = patterns(list(build_definitions().values())) | patterns(NewExecution.model_json_schema())
    assert known <= PATTERN_WORDS.keys()


def test_many_unknown_fields_make_a_short_answer() -> None:
    found = errors(CodeExecutionSpec, {"code": "1", "x" * 10_000: 1} | {f"f{number}": 1 for number in range(5000)})
    assert len(found) == MAX_FIELD_ERRORS + 1
    assert found["body"].endswith(" more errors")
    assert len(json.dumps(found)) < 20_000
