"""Policy decisions by the lists of execution, pool and server, and by the server's policy."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_exec_api.sandbox_pool import PoolTools
from mcp_exec_api.tool_server import Action, Policy, PolicyRule, ToolServerSpec
from mcp_exec_broker.access.policy import PolicyDecision, evaluate, is_destructive
from mcp_exec_broker.errors import ErrorKind, ErrorReason, ToolCallError
from mcp_exec_tools.names import matches_any

Hints = dict[str, bool]
SERVERS = ("github", "files", "gitlab")
TOOLS = ("create_issue", "create_pr", "list_issues", "delete", "del")
names = st.sampled_from(TOOLS)
server_names = st.sampled_from(SERVERS)
tool_patterns = st.one_of(names, st.sampled_from(["*", "create_*", "del*", "list*"]))
patterns = st.builds("{}.{}".format, st.one_of(server_names, st.sampled_from(["*", "git*"])), tool_patterns)
pattern_lists = st.lists(patterns, max_size=4)
tool_lists = st.lists(tool_patterns, max_size=4)
actions = st.sampled_from(Action)
hints = st.dictionaries(st.sampled_from(["readOnlyHint", "destructiveHint"]), st.booleans())
rule_tools = st.lists(tool_patterns, min_size=1, max_size=3)
rules = st.lists(
    st.builds(
        lambda tools, action: PolicyRule(tools=tools, action=action),
        st.lists(tool_patterns, min_size=1, max_size=3),
        actions,
    ),
    max_size=3,
)


def spec(**fields: Any) -> ToolServerSpec:
    return ToolServerSpec(url="http://mcp.test/mcp", **fields)


specs = st.builds(
    lambda allow, deny, found, destructive, default: spec(
        allow=allow, deny=deny, policy=Policy(rules=found, destructive=destructive, default=default)
    ),
    tool_lists,
    tool_lists,
    rules,
    actions,
    actions,
)
pools = st.builds(lambda allow, deny: PoolTools(allow=allow, deny=deny), pattern_lists, pattern_lists)


def verdict(
    tool: str = "create_issue",
    *,
    allowed: tuple[str, ...] = ("*.*",),
    pool: PoolTools | None = None,
    annotations: dict[str, Any] | None = None,
    **fields: Any,
) -> PolicyDecision:
    return evaluate(
        server="github",
        tool=tool,
        annotations=annotations or {},
        spec=spec(**fields),
        allowed=allowed,
        pool=pool or PoolTools(),
    )


@given(server_names, names, pattern_lists, pools, specs, hints)
def test_what_any_of_the_lists_denies_is_never_made(
    server: str, tool: str, allowed: list[str], pool: PoolTools, found: ToolServerSpec, annotations: Hints
) -> None:
    made = evaluate(server=server, tool=tool, annotations=annotations, spec=found, allowed=allowed, pool=pool)
    on_server = [f"*.{pattern}" for pattern in found.deny]
    denied = (
        matches_any(pool.deny, server=server, tool=tool)
        or matches_any(on_server, server=server, tool=tool)
        or not matches_any(allowed, server=server, tool=tool)
        or not matches_any(pool.allow, server=server, tool=tool)
        or not matches_any([f"*.{pattern}" for pattern in found.allow], server=server, tool=tool)
    )
    if denied:
        assert (made.action, made.reason) == (Action.DENY, ErrorReason.NOT_ALLOWED)


@given(server_names, names, pattern_lists, pools, specs, hints, st.randoms())
def test_the_order_of_the_lists_changes_nothing(
    server: str,
    tool: str,
    allowed: list[str],
    pool: PoolTools,
    found: ToolServerSpec,
    annotations: dict[str, bool],
    random: Any,
) -> None:
    def shuffled(given: list[str]) -> list[str]:
        return random.sample(given, len(given))  # type: ignore[no-any-return]

    before = evaluate(server=server, tool=tool, annotations=annotations, spec=found, allowed=allowed, pool=pool)
    after = evaluate(
        server=server,
        tool=tool,
        annotations=annotations,
        spec=found.model_copy(update={"allow": shuffled(found.allow), "deny": shuffled(found.deny)}),
        allowed=shuffled(allowed),
        pool=PoolTools(allow=shuffled(pool.allow), deny=shuffled(pool.deny)),
    )
    assert after == before


@given(server_names, names, pattern_lists, pools, specs, hints, patterns)
def test_one_more_denial_never_widens(
    server: str,
    tool: str,
    allowed: list[str],
    pool: PoolTools,
    found: ToolServerSpec,
    annotations: dict[str, bool],
    more: str,
) -> None:
    before = evaluate(server=server, tool=tool, annotations=annotations, spec=found, allowed=allowed, pool=pool)
    narrower = PoolTools(allow=pool.allow, deny=[*pool.deny, more])
    after = evaluate(server=server, tool=tool, annotations=annotations, spec=found, allowed=allowed, pool=narrower)
    assert after.action in (before.action, Action.DENY)


def test_an_execution_without_tools_may_call_none() -> None:
    assert verdict(allowed=()).reason is ErrorReason.NOT_ALLOWED


def test_the_first_rule_that_names_the_tool_counts() -> None:
    policy = Policy(
        rules=[
            PolicyRule(tools=["create_issue"], action=Action.ALLOW),
            PolicyRule(tools=["create_*"], action=Action.DENY),
        ]
    )
    assert verdict("create_issue", policy=policy).action is Action.ALLOW
    made = verdict("create_pr", policy=policy)
    assert (made.action, made.reason) == (Action.DENY, ErrorReason.DENIED_BY_POLICY)
    assert "rule 1" in made.explanation


def test_a_rule_counts_before_what_the_tool_says_of_itself() -> None:
    policy = Policy(rules=[PolicyRule(tools=["delete"], action=Action.ALLOW)])
    assert verdict("delete", policy=policy, annotations={"destructiveHint": True}).action is Action.ALLOW


@pytest.mark.parametrize(
    ("annotations", "destructive"),
    [
        ({}, False),
        ({"destructiveHint": True}, True),
        ({"destructiveHint": False}, False),
        ({"destructiveHint": True, "readOnlyHint": True}, False),
        ({"destructiveHint": True, "readOnlyHint": False}, True),
        ({"destructiveHint": "yes"}, False),
        ({"destructiveHint": True, "readOnlyHint": "yes"}, True),
    ],
)
def test_a_tool_is_destructive_that_says_so_and_does_not_only_read(
    annotations: dict[str, Any], destructive: bool
) -> None:
    assert is_destructive(annotations) is destructive
    assert verdict("delete", annotations=annotations).action is (Action.APPROVE if destructive else Action.ALLOW)


def test_a_denied_call_fails_with_the_list_that_denied_it() -> None:
    with pytest.raises(ToolCallError, match=r"the pool denies github\.delete") as raised:
        verdict("delete", pool=PoolTools(deny=["github.del*"])).raise_if_denied()
    assert (raised.value.kind, raised.value.reason) == (ErrorKind.DENIED, ErrorReason.NOT_ALLOWED)
    verdict().raise_if_denied()
