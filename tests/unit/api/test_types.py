"""Types of the custom resources: defaults, limits and small functions."""

import hashlib
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from mcp_exec_api.code_execution import CodeExecutionSpec, format_duration, spec_digest
from mcp_exec_api.meta import Condition, ConditionStatus, field_errors, micro_time, parse_quantity, set_condition
from mcp_exec_api.sandbox_pool import Resources, SandboxPoolSpec
from mcp_exec_api.tool_server import Stdio


def errors_of(model: Any, data: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(ValidationError) as caught:
        model.model_validate(data)
    return {error.field: error.message for error in field_errors(caught.value)}


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({}, "code"),
        ({"code": ""}, "code"),
        ({"code": "1", "skillRef": {"name": "a"}}, "code"),
        ({"skillRef": {"name": "a-v2"}}, "skillRef.name"),
        ({"code": "é" * 140_000}, "code"),
        ({"code": "1", "timeoutSeconds": 3601}, "timeoutSeconds"),
        ({"code": "1", "limits": {"outputBytes": 1}}, "limits.outputBytes"),
        ({"code": "1", "limits": {"cpu": 1}}, "limits.cpu"),
        ({"code": "1", "poolRef": {"name": "A"}}, "poolRef.name"),
        ({"code": "1", "context": {"a": "x" * 300_000}}, "context"),
        ({"code": "1", "language": "ruby"}, "language"),
    ],
)
def test_a_bad_execution_is_refused_by_the_name_of_its_field(data: dict[str, Any], field: str) -> None:
    assert field in errors_of(CodeExecutionSpec, data)


def test_an_unknown_field_is_called_unknown() -> None:
    assert errors_of(CodeExecutionSpec, {"code": "1", "timeout": 3}) == {"timeout": "unknown field"}


def test_limits_that_name_one_resource_keep_the_defaults_of_the_others() -> None:
    spec = SandboxPoolSpec.model_validate({"image": "i", "resources": {"limits": {"memory": "1Gi"}}})
    assert spec.resources.limits.to_api() == {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "512Mi"}


def test_a_workspace_of_a_few_bytes_is_refused() -> None:
    assert "workspaceSize" in errors_of(SandboxPoolSpec, {"image": "i", "workspaceSize": "10"})


@given(st.dictionaries(st.sampled_from(["code", "context", "timeoutSeconds"]), st.text(), min_size=1))
def test_a_digest_does_not_depend_on_order_or_on_mutable_fields(spec: dict[str, Any]) -> None:
    shuffled = dict(reversed(list(spec.items()))) | {"cancelRequested": True, "ttlSecondsAfterFinished": 1}
    assert spec_digest(shuffled) == spec_digest(spec)
    assert spec_digest(spec | {"code": json.dumps(spec) + "!"}) != spec_digest(spec)


def test_digests_from_before_there_were_priorities_stay_true() -> None:
    spec = {"code": "1", "timeoutSeconds": 30}
    assert spec_digest(spec | {"priority": "Normal"}) == spec_digest(spec)
    assert spec_digest(spec | {"priority": "High"}) != spec_digest(spec)


def stored_digest(spec: dict[str, Any]) -> str:
    """Return the digest that former versions stored."""
    names = ("code", "context", "poolRef", "timeoutSeconds", "limits", "priority", "tools", "user")
    fixed = {name: spec.get(name) for name in names}
    if fixed["priority"] in (None, "Normal"):
        del fixed["priority"]
    for name in ("tools", "user"):
        if not fixed[name]:
            del fixed[name]
    if isinstance(limits := fixed["limits"], dict) and limits.get("toolCalls") == 100:
        fixed["limits"] = {key: value for key, value in limits.items() if key != "toolCalls"}
    return "sha256:" + hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()


SPECS = st.fixed_dictionaries(
    {"code": st.text()},
    optional={
        "context": st.none() | st.dictionaries(st.text(), st.integers()),
        "poolRef": st.none() | st.fixed_dictionaries({"name": st.sampled_from(["default", "other"])}),
        "timeoutSeconds": st.sampled_from([None, 1, 30, 300]),
        "limits": st.none()
        | st.fixed_dictionaries(
            {},
            optional={
                "outputBytes": st.sampled_from([None, 1024, 65536]),
                "toolCalls": st.sampled_from([None, 0, 100, 5000]),
                "later": st.integers(),
            },
        ),
        "priority": st.sampled_from([None, "", "High", "Normal", "Low"]),
        "tools": st.none() | st.lists(st.sampled_from(["git.*", "a.b"])),
        "user": st.none() | st.text(min_size=1),
        "approvals": st.lists(st.integers()),
        "ttlSecondsAfterFinished": st.integers(),
        "cancelRequested": st.booleans(),
        "unknown": st.integers(),
    },
)


@given(SPECS)
def test_stored_digests_stay_valid(spec: dict[str, Any]) -> None:
    assert spec_digest(spec) == stored_digest(spec)


def condition(status: ConditionStatus, second: int) -> Condition:
    return Condition(type="Ready", status=status, last_transition_time=datetime(2026, 1, 1, second=second, tzinfo=UTC))


def test_a_condition_keeps_its_time_while_its_status_stays() -> None:
    first = set_condition([], condition(ConditionStatus.TRUE, 1))
    same = set_condition(first, condition(ConditionStatus.TRUE, 2))
    changed = set_condition(same, condition(ConditionStatus.FALSE, 3))
    assert [each[0].last_transition_time.second for each in (first, same, changed)] == [1, 1, 3]


def test_moments_are_written_in_utc_with_microseconds() -> None:
    moment = datetime(2026, 11, 21, 22, 0, 0, 5, tzinfo=timezone(timedelta(hours=2)))
    assert micro_time(moment) == "2026-11-21T20:00:00.000005Z"


@pytest.mark.parametrize(
    ("milliseconds", "text"), [(11.6, "12ms"), (999.4, "999ms"), (1000, "1.0s"), (30_040, "30.0s")]
)
def test_durations_are_short(milliseconds: float, text: str) -> None:
    assert format_duration(milliseconds) == text


@pytest.mark.parametrize(
    ("text", "number"), [("512Mi", 512 * 2**20), ("1.5G", 1_500_000_000), ("250m", 0.25), ("7", 7)]
)
def test_quantities_are_read_as_kubernetes_reads_them(text: str, number: float) -> None:
    assert float(parse_quantity(text)) == number


@pytest.mark.parametrize(
    ("value", "text"),
    [(2, "2"), (0.25, "0.25"), (2.0, "2"), (1e9, "1000000000"), (0.00001, "0.00001"), ("250m", "250m"), ("2", "2")],
)
def test_quantities_are_numbers_or_texts(value: Any, text: str) -> None:
    both = {"cpu": value, "ephemeral-storage": value}
    amounts = Resources.model_validate({"limits": both, "requests": both})
    assert (amounts.limits.cpu, amounts.requests.ephemeral_storage) == (text, text)
    assert amounts.to_container()["limits"]["cpu"] == text
    pool = SandboxPoolSpec.model_validate({"image": "i", "codeCheck": {"memory": value}})
    assert pool.code_check.memory == text
    assert Stdio.model_validate({"image": "i", "command": ["c"], "dataSize": value}).data_size == text


@pytest.mark.parametrize("value", [True, -1, float("nan"), float("inf"), 1e40, [1], {"a": 1}, "-1", "1e3", " 2"])
def test_other_values_are_no_quantities(value: Any) -> None:
    with pytest.raises(ValidationError):
        Resources.model_validate({"limits": {"cpu": value}})


@pytest.mark.parametrize("text", ["", "Mi", "1.2.3", "5 Gi", "1X"])
def test_an_invalid_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        parse_quantity(text)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"warm": {"max": 20}, "maxPods": 10}, "warm.max is 20; it must not be more than maxPods, which is 10"),
        ({"maxPods": 2}, "warm.min is 3; it must not be more than maxPods, which is 2"),
        ({"image": "https://registry.example/a:1"}, "it must be an image without https://, for example"),
        (
            {"resources": {"limits": {"memory": "32Mi"}}},
            "requests.memory is 64Mi; it must not be more than the limit, which is 32Mi",
        ),
        (
            {"resources": {"requests": {"cpu": "2"}}},
            "requests.cpu is 2; it must not be more than the limit, which is 1",
        ),
        (
            {"scaling": {"fastWindowSeconds": 60, "slowWindowSeconds": 30}},
            "slowWindowSeconds is 30; it must be at least",
        ),
        ({"scaling": {"headroom": -1}}, "greater than or equal to 0"),
        ({"scaling": {"mode": "demand"}}, "unknown field"),
    ],
)
def test_a_pool_with_contradictory_scaling_is_refused(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        SandboxPoolSpec.model_validate({"image": "i", **spec})
    assert message in field_errors(refusal.value)[0].message


@pytest.mark.parametrize(
    ("warm", "most", "follows"),
    [({}, 3, False), ({"max": 9}, 9, True), ({"min": 0, "max": 1}, 1, True), ({"min": 9, "max": 4}, 9, False)],
)
def test_a_pool_follows_demand_if_it_may_have_more_than_its_minimum(
    warm: dict[str, int], most: int, follows: bool
) -> None:
    spec = SandboxPoolSpec.model_validate({"image": "i", "warm": warm})
    assert (spec.max_warm, spec.follows_demand) == (most, follows)
