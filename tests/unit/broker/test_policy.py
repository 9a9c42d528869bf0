"""Explanations of policy decisions; test_rights_model has the decisions."""

from typing import Any

import pytest

from mcp_exec_api.sandbox_pool import PoolTools
from mcp_exec_api.tool_server import Action, Policy, PolicyRule, ToolServerSpec
from mcp_exec_broker.core.access.policy import PolicyDecision, evaluate
from mcp_exec_broker.core.errors import ErrorKind, ErrorReason, ToolCallError


def spec(**fields: Any) -> ToolServerSpec:
    return ToolServerSpec(url="http://mcp.test/mcp", **fields)


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


def test_a_denied_call_fails_with_the_list_that_denied_it() -> None:
    with pytest.raises(ToolCallError, match=r"the pool denies github\.delete") as raised:
        verdict("delete", pool=PoolTools(deny=["github.del*"])).raise_if_denied()
    assert (raised.value.kind, raised.value.reason) == (ErrorKind.DENIED, ErrorReason.NOT_ALLOWED)
    verdict().raise_if_denied()
