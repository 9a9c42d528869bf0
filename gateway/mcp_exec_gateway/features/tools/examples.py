"""Examples of tools and approvals in the OpenAPI document."""

from typing import Any, Final

from mcp_exec_gateway.core.openapi import Examples, show

_APPROVAL: Final[dict[str, Any]] = {
    "id": "apr-7k2mq",
    "tool": "github.merge_pull_request",
    "arguments": '{"owner": "acme", "pull_number": 17, "repo": "site"}',
    "argumentsDigest": "sha256:ca27c14151d6f3aa5321f43b3b2d4f1b6d1c8f1f9e1c2a7ad8f0f5be8e5f1a46",
    "argumentsBytes": 47,
    "argumentsComplete": True,
    "state": "Pending",
    "requestedAt": "2026-11-21T20:00:01.000000Z",
    "expiresAt": "2026-11-21T20:05:01.000000Z",
}
"""A pending approval."""
_DECIDED: Final[dict[str, Any]] = {**_APPROVAL, "state": "Approved", "decidedBy": "release-team"}
"""An approved tool call."""
_PENDING_APPROVAL: Final[dict[str, Any]] = {
    **_APPROVAL,
    "execution": "exec-01k9x3v5t8q2",
    "namespace": "agents",
    "caller": "team-a",
}
"""A pending approval, with its execution."""
_FOUND: Final[list[dict[str, Any]]] = [
    {
        "name": "create_pull_request",
        "server": "github",
        "description": "Create a new pull request in a GitHub repository",
        "import": "from servers.github import create_pull_request",
    }
]
"""Results of a search for tools."""
_TOOLS: Final[dict[str, Any]] = {
    "server": "context7",
    "tools": [
        {
            "name": "query-docs",
            "description": "Retrieves up-to-date documentation of a library",
            "inputSchema": {
                "type": "object",
                "properties": {"libraryId": {"type": "string"}, "query": {"type": "string"}},
                "required": ["libraryId", "query"],
            },
            "annotations": {"readOnlyHint": True},
        }
    ],
}
"""Tools of one server."""
EXAMPLES: Final[Examples] = {
    "NewDecision": show(approve={"decision": "Approve"}),
    "Approval": show(approved=_DECIDED),
    "ApprovalList": show(one={"items": [_APPROVAL]}),
    "PendingApprovalList": show(one={"items": [_PENDING_APPROVAL], "complete": True}),
    "FoundTool": show(found=_FOUND),
    "ServerTools": show(one=_TOOLS),
}
