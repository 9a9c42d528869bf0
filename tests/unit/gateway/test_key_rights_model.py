"""Limits of API keys against a naive model: what an execution may name, and what it can then call."""

import re
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.support import rights
from tests.support.fuzz import fuzz_settings

from mcp_exec_api.code_execution import CodeExecutionSpec, PoolRef, Priority
from mcp_exec_api.wire.stats import KeyLimits
from mcp_exec_gateway.core.auth.callers import Caller, format_caller_label
from mcp_exec_gateway.core.executions.limits import fit_spec
from mcp_exec_gateway.core.http.problems import HttpProblem
from mcp_exec_gateway.core.pools import PoolCache
from mcp_exec_tools.patterns import ToolPatterns, intersect, matches_any

pytestmark = pytest.mark.fuzz

POOLS = ["default", "big", "big-2"]
NAMESPACES = ["agents", "agents-2", "others"]
USERS = ["u-1", "u-10", "U-1", "team-a/x", "team-a", "team-ab/x", "u-1\n", "u\u200b-1", "\uff55-1", "*", "u*"]
PRIORITIES = ["Low", "Normal", "High"]
LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
callers = st.text(min_size=1, max_size=300) | st.text(alphabet="ab:._-é", min_size=1, max_size=100)
users = st.sampled_from(USERS) | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
user_patterns = st.sampled_from(["u-1", "u-1*", "team-a/*", "team-a*", "*", "u-", "U*"])
requests = st.fixed_dictionaries(
    {
        "code": st.just("1"),
        "poolRef": st.sampled_from(POOLS).map(lambda name: {"name": name}),
        "tools": rights.tool_pattern_lists,
    },
    optional={
        "user": users,
        "timeoutSeconds": st.integers(1, 3600),
        "priority": st.sampled_from(PRIORITIES),
    },
)
limits = st.fixed_dictionaries(
    {},
    optional={
        "tools": rights.tool_pattern_lists,
        "users": st.lists(user_patterns, max_size=2),
        "pools": st.lists(st.sampled_from(POOLS), min_size=1, max_size=2),
        "maxPriority": st.sampled_from(PRIORITIES),
        "maxTimeoutSeconds": st.integers(1, 3600),
    },
)


def find_wrong_fields(request: dict[str, Any], limits: dict[str, Any], *, pool_seconds: int | None) -> set[str]:
    """Return the fields that are beyond the limits, by the documentation of API keys."""
    wrong = set()
    if "pools" in limits and request["poolRef"]["name"] not in limits["pools"]:
        wrong.add("poolRef.name")
    if "tools" in limits and not all(is_covered(pattern, limits["tools"]) for pattern in request["tools"]):
        wrong.add("tools")
    users = limits.get("users", ["*"])
    if "user" in request and not any(rights.names_match(pattern, request["user"]) for pattern in users):
        wrong.add("user")
    if pool_seconds is None:
        return wrong | {"poolRef.name"}
    if "timeoutSeconds" in request and request["timeoutSeconds"] > min(
        pool_seconds, limits.get("maxTimeoutSeconds", pool_seconds)
    ):
        wrong.add("timeoutSeconds")
    highest = limits.get("maxPriority", "High")
    if "priority" in request and PRIORITIES.index(request["priority"]) > PRIORITIES.index(highest):
        wrong.add("priority")
    return wrong


def is_covered(pattern: str, bounds: list[str]) -> bool:
    """Return whether one bound names all that the pattern names: each part is the same, or the bound's has a star."""
    for bound in bounds:
        pairs = zip(bound.split(".", 1), pattern.split(".", 1), strict=True)
        if all(own == other or (own[-1] == "*" and other.startswith(own[:-1])) for own, other in pairs):
            return True
    return False


def build_caller(limits: dict[str, Any], namespace: str) -> Caller:
    return Caller(name="key", label="key", namespace=namespace, limits=KeyLimits.model_validate(limits))


@fuzz_settings(400)
@given(request=requests, limits=limits, namespace=st.sampled_from(NAMESPACES), seconds=st.integers(1, 300))
def test_an_execution_is_accepted_exactly_if_it_is_within_the_keys_limits(
    request: dict[str, Any], limits: dict[str, Any], namespace: str, seconds: int
) -> None:
    pools = PoolCache()
    for name in ("default", "big"):
        item = {"metadata": {"name": name, "namespace": "agents"}, "spec": {"maxTimeoutSeconds": seconds}}
        pools.on_change(item, False)
    exists = namespace == "agents" and request["poolRef"]["name"] != "big-2"
    wrong = find_wrong_fields(request, limits, pool_seconds=seconds if exists else None)
    try:
        spec = CodeExecutionSpec.model_validate(request)
    except ValueError:
        assume(False)
        return
    try:
        fitted = fit_spec(spec, caller=build_caller(limits, namespace), pools=pools)
    except HttpProblem as problem:
        named = {error.field.split(".")[0] for error in problem.errors}
        assert named
        assert named <= {field.split(".")[0] for field in wrong}
        return
    assert not wrong
    assert fitted.timeout_seconds <= min(seconds, limits.get("maxTimeoutSeconds", seconds))
    if "maxPriority" in limits:
        assert fitted.priority.rank >= Priority(limits["maxPriority"]).rank
    assert (fitted.tools, fitted.user, fitted.pool_ref) == (spec.tools, spec.user, PoolRef(**request["poolRef"]))


@fuzz_settings(400)
@given(pattern=rights.tool_patterns, bounds=rights.tool_pattern_lists, server=rights.servers, tool=rights.tools)
def test_no_execution_can_call_a_tool_beyond_its_keys_limit(
    pattern: str, bounds: list[str], server: str, tool: str
) -> None:
    is_within = ToolPatterns(bounds).cover(pattern)
    assert is_within == is_covered(pattern, bounds)
    if is_within and rights.pattern_matches(pattern, server, tool):
        assert any(rights.pattern_matches(bound, server, tool) for bound in bounds)


@fuzz_settings(200)
@given(pattern=st.text(alphabet="ab*/\n", max_size=5))
def test_a_pattern_of_users_has_its_star_at_the_end_alone(pattern: str) -> None:
    try:
        KeyLimits.model_validate({"users": [pattern]})
    except ValueError:
        assert not pattern or "*" in pattern[:-1]
    else:
        assert pattern
        assert "*" not in pattern[:-1]


@fuzz_settings(300)
@given(names=st.lists(callers | users, min_size=2, max_size=10, unique=True))
def test_no_two_callers_have_the_same_label(names: list[str]) -> None:
    accounts = [f"system:serviceaccount:agents:{name}" for name in ("a-b", "a.b")]
    labels = [format_caller_label(name) for name in [*names, *accounts]]
    assert len(set(labels)) == len(labels)
    assert all(LABEL.fullmatch(label) for label in labels)


@fuzz_settings(300)
@given(chosen=rights.tool_pattern_lists, allowed=rights.tool_pattern_lists, server=rights.servers, tool=rights.tools)
def test_chosen_tools_are_narrowed_to_those_of_the_key(
    chosen: list[str], allowed: list[str], server: str, tool: str
) -> None:
    name = {"server": server, "tool": tool}
    both = matches_any(chosen, **name) and matches_any(allowed, **name)
    assert matches_any(intersect(chosen, ToolPatterns(allowed), limit=1000), **name) == both
