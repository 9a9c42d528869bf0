"""The CEL rules of a rollout, by a second implementation of CEL and by the types."""

from collections.abc import Iterator
from typing import Any

import celpy
import pytest
from pydantic import ValidationError
from tests.e2e.admission.test_rules import ARMS, GUARD, REFUSED, ROLLOUT, ROLLOUT_CHANGES, STAGE

from mcp_exec_api.crd_schema import build_definitions
from mcp_exec_api.execution_rollout import ExecutionRolloutSpec

CONTRADICTIONS = [(spec, message) for plural, spec, message in REFUSED if plural == "executionrollouts"]
VERSION = build_definitions()["executionrollouts"]["spec"]["versions"][0]
SCHEMA: dict[str, Any] = VERSION["schema"]["openAPIV3Schema"]["properties"]["spec"]


def stored(schema: dict[str, Any], value: Any) -> Any:
    """Return a value as the API server has it for CEL: with defaults, and with numbers that are not integers."""
    if schema["type"] == "object":
        parts = schema["properties"]
        given = {name: part["default"] for name, part in parts.items() if "default" in part} | value
        return {name: stored(parts[name], each) for name, each in given.items()}
    if schema["type"] == "array":
        return [stored(schema["items"], each) for each in value]
    return float(value) if schema["type"] == "number" else value


def broken(schema: dict[str, Any], new: Any, old: Any) -> Iterator[str]:
    environment = celpy.Environment()
    for rule in schema.get("x-kubernetes-validations", ()):
        program = environment.program(environment.compile(rule["rule"]))
        if not program.evaluate({"self": celpy.json_to_cel(new), "oldSelf": celpy.json_to_cel(old)}):
            yield rule["message"]
    if schema["type"] == "array":
        for each in new:
            yield from broken(schema["items"], each, each)
    for name, part in schema.get("properties", {}).items():
        if name in new:
            yield from broken(part, new[name], old.get(name, new[name]))


def refusals(new: dict[str, Any], old: dict[str, Any]) -> set[str]:
    return set(broken(SCHEMA, stored(SCHEMA, new), stored(SCHEMA, old)))


@pytest.mark.parametrize(("spec", "message"), CONTRADICTIONS)
def test_a_rule_refuses_what_contradicts_itself(spec: dict[str, Any], message: str) -> None:
    assert message in refusals(spec, spec)


@pytest.mark.parametrize(("spec", "message"), CONTRADICTIONS)
def test_the_types_refuse_most_of_it_too(spec: dict[str, Any], message: str) -> None:
    if "threshold" in message or "needs a mode" in message:
        return  # harmless: such a guard never acts, and such an arm changes nothing
    with pytest.raises(ValidationError):
        ExecutionRolloutSpec.model_validate(spec)


@pytest.mark.parametrize(("changed", "message"), ROLLOUT_CHANGES)
def test_a_rule_refuses_a_change_of_who_gets_which_arm(changed: dict[str, Any], message: str) -> None:
    old = ROLLOUT | {"killSwitch": True}
    assert refusals(old | changed, old) == {message}


@pytest.mark.parametrize(
    "spec",
    [
        ROLLOUT,
        ROLLOUT | {"guards": [GUARD | {"compareTo": "Control"}], "completeWith": "code", "salt": "s"},
        ROLLOUT | {"stages": [{"name": "five", "users": ["u-1"], "arm": "code", "manual": True}, STAGE]},
        ROLLOUT | {"arms": [*ARMS, {"name": "large", "pool": "large", "weight": 0}], "promotedTo": "Completed"},
    ],
)
def test_what_is_right_is_taken_by_the_rules_and_the_types(spec: dict[str, Any]) -> None:
    assert refusals(spec, spec) == set()
    ExecutionRolloutSpec.model_validate(spec)
