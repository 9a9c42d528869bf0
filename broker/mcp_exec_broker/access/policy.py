"""What is done with a call: whether it is made, denied, or waits for somebody's consent. Pure.

Each of execution, pool and server can only take away. What is left is judged by the server's policy.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mcp_exec_api.sandbox_pool import PoolTools
from mcp_exec_api.tool_server import Action, ToolServerSpec
from mcp_exec_broker.errors import ErrorReason, build_denial
from mcp_exec_tools.patterns import matches_any


@dataclass(frozen=True, kw_only=True)
class PolicyDecision:
    """What is done with a call, and why."""

    action: Action
    why: str
    """For people and the audit: which list or rule said so."""
    reason: ErrorReason | None = None
    """For programs, where it is denied."""

    def check(self) -> None:
        """Raises Failure where the call is denied."""
        if self.action is Action.DENY:
            raise build_denial(self.reason or ErrorReason.DENIED_BY_POLICY, self.why)


def is_visible(spec: ToolServerSpec, tool: str) -> bool:
    """Whether code sees the tool at all: the server's `allow` and `deny`."""
    return _names(spec.allow, tool) and not _names(spec.deny, tool)


def evaluate(
    *,
    server: str,
    tool: str,
    annotations: Mapping[str, Any],
    spec: ToolServerSpec,
    allowed: Iterable[str],
    pool: PoolTools,
) -> PolicyDecision:
    """What is done with a call of the tool, by its name at the server.

    `allowed` is the execution's list, `annotations` what the server says of the tool.
    """
    name = f"{server}.{tool}"
    if not matches_any(allowed, server=server, tool=tool):
        return _denied(ErrorReason.NOT_ALLOWED, f"the execution's tools do not have {name}")
    if matches_any(pool.deny, server=server, tool=tool):
        return _denied(ErrorReason.NOT_ALLOWED, f"the pool denies {name}")
    if not matches_any(pool.allow, server=server, tool=tool):
        return _denied(ErrorReason.NOT_ALLOWED, f"the pool's tools do not have {name}")
    if not is_visible(spec, tool):
        return _denied(ErrorReason.NOT_ALLOWED, f"{server} does not offer {tool}")
    return _by_policy(name, tool, annotations, spec)


def is_destructive(annotations: Mapping[str, Any]) -> bool:
    """Whether the tool says of itself that it destroys.

    MCP takes a tool that says nothing for destructive; here it has to say so, because most servers say nothing of
    tools that only read. One that says that it only reads is not destructive, whatever else it says.
    """
    return annotations.get("readOnlyHint") is not True and annotations.get("destructiveHint") is True


def _by_policy(name: str, tool: str, annotations: Mapping[str, Any], spec: ToolServerSpec) -> PolicyDecision:
    policy = spec.policy
    for number, rule in enumerate(policy.rules):
        if _names(rule.tools, tool):
            return _verdict(rule.action, f"rule {number} of the policy on {name}")
    if is_destructive(annotations):
        return _verdict(policy.destructive, f"the policy on destructive tools, and {name} says that it is one")
    return _verdict(policy.default, f"the policy's default on {name}")


def _names(patterns: Iterable[str], tool: str) -> bool:
    return any(tool.startswith(each[:-1]) if each.endswith("*") else tool == each for each in patterns)


def _verdict(action: Action, why: str) -> PolicyDecision:
    if action is Action.DENY:
        return _denied(ErrorReason.DENIED_BY_POLICY, f"denied by {why}")
    return PolicyDecision(action=action, why=why)


def _denied(reason: ErrorReason, why: str) -> PolicyDecision:
    return PolicyDecision(action=Action.DENY, why=why, reason=reason)
