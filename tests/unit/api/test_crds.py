"""The CRDs are generated from the types and validate the same objects."""

from pathlib import Path
from typing import Any

import celpy
import pytest
import yaml
from pydantic import BaseModel

from mcp_exec_api import __main__ as generate
from mcp_exec_api.code_execution import CodeExecutionStatus
from mcp_exec_api.constants import ANNOTATION_RELEASE_VERSION
from mcp_exec_api.crd_schema import build_definitions, to_structural
from mcp_exec_api.rollout_status import ExecutionRolloutStatus
from mcp_exec_api.sandbox_pool import SandboxPoolStatus
from mcp_exec_api.sandbox_session import SandboxSessionStatus
from mcp_exec_api.tool_server import ToolServerStatus
from mcp_exec_api.wire.version import RELEASE

ROOT = Path(__file__).parents[3]


def schema_of(plural: str, part: str) -> dict[str, Any]:
    version = build_definitions()[plural]["spec"]["versions"][0]
    return version["schema"]["openAPIV3Schema"]["properties"][part]


@pytest.mark.parametrize("name", sorted(generate.build_files()))
def test_every_generated_file_is_up_to_date(name: str) -> None:
    assert (ROOT / name).read_text() == generate.build_files()[name], "run `make generate`"


def nodes(schema: dict[str, Any], path: str) -> list[tuple[str, dict[str, Any]]]:
    found = [(path, schema)]
    for name, each in schema.get("properties", {}).items():
        found += nodes(each, f"{path}.{name}")
    if "items" in schema:
        found += nodes(schema["items"], f"{path}[]")
    return found


@pytest.mark.parametrize("plural", sorted(build_definitions()))
@pytest.mark.parametrize("part", ["spec", "status"])
def test_every_field_is_described_and_structural(plural: str, part: str) -> None:
    for path, schema in nodes(schema_of(plural, part), part):
        assert path.endswith("[]") or schema.get("description"), f"{path} has no description"
        assert "type" in schema or schema.get("x-kubernetes-preserve-unknown-fields"), f"{path} has no type"
        assert not {"$ref", "anyOf", "title", "const"} & set(schema), path
        assert schema.get("default") != "", f"Kubernetes 1.20 reads the default of {path} as null"


def rule(message: str) -> str:
    rules = schema_of("codeexecutions", "spec")["x-kubernetes-validations"]
    return next(each["rule"] for each in rules if message in each["message"])


def holds(expression: str, *, new: Any, old: Any) -> bool:
    environment = celpy.Environment()
    program = environment.program(environment.compile(expression))
    return bool(program.evaluate({"self": celpy.json_to_cel(new), "oldSelf": celpy.json_to_cel(old)}))


SPEC = {
    "code": "print(1)",
    "poolRef": {"name": "default"},
    "timeoutSeconds": 30,
    "limits": {"outputBytes": 65536},
    "priority": "Normal",
    "cancelRequested": False,
}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("code", "print(2)"),
        ("poolRef", {"name": "b"}),
        ("timeoutSeconds", 31),
        ("limits", {"outputBytes": 2048}),
        ("priority", "High"),
    ],
)
def test_a_cel_rule_refuses_a_change_of_each_immutable_field(field: str, value: Any) -> None:
    expression = rule(f"spec.{field} is immutable")
    assert holds(expression, new=SPEC, old=SPEC)
    assert not holds(expression, new=SPEC | {field: value}, old=SPEC)


def test_a_cel_rule_lets_an_execution_be_cancelled_but_not_revived() -> None:
    expression = rule("cancelRequested")
    assert holds(expression, new=SPEC | {"cancelRequested": True}, old=SPEC)
    assert not holds(expression, new=SPEC, old=SPEC | {"cancelRequested": True})


def test_a_union_that_a_crd_cannot_express_is_refused() -> None:
    class Both(BaseModel):
        field: int | str

    with pytest.raises(ValueError, match="union"):
        to_structural(Both.model_json_schema())


def test_code_or_a_skill_is_required_without_cel_too() -> None:
    spec = schema_of("codeexecutions", "spec")
    assert spec["oneOf"] == [{"required": ["code"]}, {"required": ["skillRef"]}]
    # an object that lacks the code must not get it by a default, nor have an empty one
    assert ("default" not in spec["properties"]["code"], spec["properties"]["code"]["minLength"]) == (True, 1)


def test_alternatives_that_are_not_structural_are_refused() -> None:
    alternatives = [{"required": ["a"]}, {"properties": {"b": {"type": "string"}}}]
    with pytest.raises(ValueError, match="oneOf"):
        to_structural({"type": "object", "oneOf": alternatives})


@pytest.mark.parametrize("plural", sorted(build_definitions()))
def test_a_generated_definition_is_that_of_the_types_and_names_its_release(plural: str) -> None:
    crd = build_definitions()[plural]
    found = yaml.safe_load(generate.format_crd(crd))
    assert found["metadata"].pop("annotations") == {ANNOTATION_RELEASE_VERSION: RELEASE}
    assert found == crd


@pytest.mark.parametrize("plural", sorted(build_definitions()))
def test_each_kind_is_served_and_stored_in_one_version(plural: str) -> None:
    (version,) = build_definitions()[plural]["spec"]["versions"]
    assert (version["name"], version["served"], version["storage"]) == ("v1beta1", True, True)


POOL = {
    "language": "python",
    "maxPods": 10,
    "warm": {"min": 1},
    "scaling": {"fastWindowSeconds": 10, "slowWindowSeconds": 120},
}


_ABOVE_MIN = "spec.warm.min must not be more than spec.maxPods; it is 3 by default"
_ABOVE_MAX = "spec.warm.max must not be more than spec.maxPods"


@pytest.mark.parametrize(
    ("warm", "broken"),
    [({"min": 10}, []), ({"min": 11}, [_ABOVE_MIN]), ({"min": 1, "max": 10}, []), ({"max": 11}, [_ABOVE_MAX])],
)
def test_cel_rules_keep_warm_pods_within_all_pods(warm: dict[str, Any], broken: list[str]) -> None:
    rules = schema_of("sandboxpools", "spec")["x-kubernetes-validations"]
    found = [rule["message"] for rule in rules if not holds(rule["rule"], new=POOL | {"warm": warm}, old=POOL)]
    assert found == broken


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        ({"preimport": ["json"]}, []),
        ({"language": "typescript"}, ["spec.language is immutable: create another pool"]),
    ],
)
def test_cel_rules_keep_the_language_of_a_pool(change: dict[str, Any], broken: list[str]) -> None:
    rules = schema_of("sandboxpools", "spec")["x-kubernetes-validations"]
    found = [rule["message"] for rule in rules if not holds(rule["rule"], new=POOL | change, old=POOL)]
    assert found == broken


@pytest.mark.parametrize(("modules", "broken"), [([], False), (["json"], True)])
def test_a_cel_rule_refuses_modules_of_python_in_a_pool_of_another_language(modules: list[str], broken: bool) -> None:
    rules = schema_of("sandboxpools", "spec")["x-kubernetes-validations"]
    pool = POOL | {"language": "typescript", "preimport": modules}
    found = [rule["message"] for rule in rules if not holds(rule["rule"], new=pool, old=pool)]
    assert found == ["spec.preimport is only for pools of the language python"] * broken


def test_a_cel_rule_keeps_the_slow_window_no_shorter_than_the_fast_one() -> None:
    (one,) = schema_of("sandboxpools", "spec")["properties"]["scaling"]["x-kubernetes-validations"]
    windows = POOL["scaling"]
    assert isinstance(windows, dict)
    assert holds(one["rule"], new=windows, old=windows)
    assert not holds(one["rule"], new=windows | {"slowWindowSeconds": 9}, old=windows)


def test_an_object_that_nobody_has_seen_says_so() -> None:
    for plural, status in (
        ("codeexecutions", CodeExecutionStatus),
        ("sandboxpools", SandboxPoolStatus),
        ("sandboxsessions", SandboxSessionStatus),
        ("toolservers", ToolServerStatus),
        ("executionrollouts", ExecutionRolloutStatus),
    ):
        default = schema_of(plural, "status")["default"]
        assert "NotObserved" in str(status.model_validate(default).to_api())
        assert "phase" not in default


def test_a_default_leaves_out_unset_fields() -> None:
    spec = schema_of("sandboxpools", "spec")["properties"]
    assert spec["warm"]["default"] == {"min": 3}
    assert "refillPerSecond" not in spec["scaling"]["default"]


def stored(schema: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the object as the API server stores it: missing fields have their default or stay missing."""
    found = dict(given)
    for name, each in schema.get("properties", {}).items():
        if name not in found and "default" in each:
            found[name] = each["default"]
        if isinstance(found.get(name), dict):
            found[name] = stored(each, found[name])
    return found


@pytest.mark.parametrize(
    ("plural", "least"),
    [
        ("codeexecutions", {"code": "1"}),
        ("sandboxpools", {"image": "i"}),
        ("sandboxsessions", {}),
        ("toolservers", {"url": "https://example.invalid"}),
        ("toolservers", {"stdio": {"image": "i", "command": ["c"]}}),
    ],
)
def test_every_rule_holds_for_the_minimal_object_without_unset_fields(plural: str, least: dict[str, Any]) -> None:
    schema = schema_of(plural, "spec")
    spec = stored(schema, least)
    for each in schema["x-kubernetes-validations"]:
        assert holds(each["rule"], new=spec, old=spec), each["rule"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ({}, {"name": "a"}, "spec.name of a session is immutable"),
        ({"user": "a"}, {"user": "b"}, "spec.user of a session is immutable"),
        ({}, {"poolRef": {"name": "b"}}, "spec.poolRef of a session is immutable"),
        ({"resets": 2}, {"resets": 1}, "spec.resets cannot be lowered"),
    ],
)
def test_cel_rules_keep_what_a_session_is_and_its_resets(
    old: dict[str, Any], new: dict[str, Any], message: str
) -> None:
    schema = schema_of("sandboxsessions", "spec")
    before, after = stored(schema, old), stored(schema, new)
    broken = [
        each["message"] for each in schema["x-kubernetes-validations"] if not holds(each["rule"], new=after, old=before)
    ]
    assert broken == [message]
    allowed = before | {"resets": before["resets"] + 1, "idleTimeoutSeconds": 60, "description": "x"}
    assert all(holds(each["rule"], new=allowed, old=before) for each in schema["x-kubernetes-validations"])
