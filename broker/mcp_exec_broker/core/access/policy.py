"""The policy decision on a tool call: allow it, deny it, or require an approval. Pure.

Execution, pool and ToolServer can each only remove tools. The policy of the ToolServer decides on the rest.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mcp_exec_api.sandbox_pool import PoolTools
from mcp_exec_api.tool_server import Action, ToolServerSpec
from mcp_exec_broker.core.errors import ErrorReason, build_denial
from mcp_exec_tools.patterns import matches_any


@dataclass(frozen=True, kw_only=True)
class PolicyDecision:
    """The action on a call, and its cause."""

    action: Action
    explanation: str
    """The list or rule that decided, for people and the audit log."""
    reason: ErrorReason | None = None
    """The cause of a denial, for programs."""

    def raise_if_denied(self) -> None:
        """Raise ToolCallError if the call is denied."""
        if self.action is Action.DENY:
            raise build_denial(self.reason or ErrorReason.DENIED_BY_POLICY, self.explanation)


def is_callable(spec: ToolServerSpec, tool: str, annotations: Mapping[str, Any]) -> bool:
    """Return whether any execution can call the tool. Tools that the policy denies are not shown."""
    return spec.shows(tool) and _apply_policy("", tool, annotations, spec).action is not Action.DENY


def evaluate(
    *,
    server: str,
    tool: str,
    annotations: Mapping[str, Any],
    spec: ToolServerSpec,
    allowed: Iterable[str],
    pool: PoolTools,
    holder: str = "the execution",
) -> PolicyDecision:
    """Decide on a call of the tool, given by the server's name for it.

    `allowed` is the list of the execution or caller, which `holder` names; `annotations` are the server's own
    statements about the tool.
    """
    name = f"{server}.{tool}"
    if not matches_any(allowed, server=server, tool=tool):
        return _deny(ErrorReason.NOT_ALLOWED, f"{holder}'s tools do not have {name}")
    if matches_any(pool.deny, server=server, tool=tool):
        return _deny(ErrorReason.NOT_ALLOWED, f"the pool denies {name}")
    if not matches_any(pool.allow, server=server, tool=tool):
        return _deny(ErrorReason.NOT_ALLOWED, f"the pool's tools do not have {name}")
    if not spec.shows(tool):
        return _deny(ErrorReason.NOT_ALLOWED, f"{server} does not offer {tool}")
    return _apply_policy(name, tool, annotations, spec)


def is_destructive(annotations: Mapping[str, Any]) -> bool:
    """Return whether the tool declares itself destructive.

    In MCP a tool without annotations counts as destructive. Here it must declare it, because most servers annotate no
    read-only tools. A tool that declares itself read-only is never destructive.
    """
    return annotations.get("readOnlyHint") is not True and annotations.get("destructiveHint") is True


def _apply_policy(name: str, tool: str, annotations: Mapping[str, Any], spec: ToolServerSpec) -> PolicyDecision:
    policy = spec.policy
    if (number := policy.find_rule(tool)) is not None:
        return _decide(policy.rules[number].action, f"rule {number} of the policy on {name}")
    if is_destructive(annotations):
        return _decide(policy.destructive, f"the policy on destructive tools; {name} declares itself destructive")
    return _decide(policy.default, f"the policy's default on {name}")


def _decide(action: Action, cause: str) -> PolicyDecision:
    if action is Action.DENY:
        return _deny(ErrorReason.DENIED_BY_POLICY, f"denied by {cause}")
    return PolicyDecision(action=action, explanation=cause)


def _deny(reason: ErrorReason, explanation: str) -> PolicyDecision:
    return PolicyDecision(action=Action.DENY, explanation=explanation, reason=reason)
