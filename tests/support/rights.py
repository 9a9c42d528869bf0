"""A naive model of who may call which tool, written from docs/platform/policy.md and not from the code."""

import re
from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

SERVERS = ["github", "GitHub", "git", "gitlab", "files-2", "a_b", "x"]
TOOLS = [
    "create_issue",
    "createIssue",
    "create-issue",
    "Create_Issue",
    "CREATE_ISSUE",
    "create_issue_2",
    "create.issue",
    "create/issue",
    "create",
    "c",
    "delete_repo",
    "get.a.b",
    "API-get-user",
    "t" * 128,
]
FOREIGN = [
    "cre\u0430te_issue",  # Cyrillic a
    "create_\u0131ssue",  # dotless i
    "create_issue\u200b",  # zero-width space
    "cre\u0301ate_issue",
    "cr\u00e9ate_issue",
    "\uff43reate_issue",  # full-width c
    "create_issue ",
    " create_issue",
    "create_issue\n",
    "create_issue\x00",
    "create*",
    "*",
    ".",
    "..",
    "",
    "__",
    "a.",
    ".a",
]
"""Names that no pattern can spell, and that look like others."""

servers = st.sampled_from(SERVERS)
tools = st.sampled_from(TOOLS) | st.sampled_from(FOREIGN) | st.text(max_size=6)


def _parts(names: list[str]) -> st.SearchStrategy[str]:
    whole = st.sampled_from(names)
    cut = st.builds(lambda name, size: name[:size] + "*", whole, st.integers(1, 8))
    return whole | cut | st.just("*")


server_parts = _parts(SERVERS)
tool_parts = _parts(TOOLS)
tool_patterns = st.builds("{}.{}".format, server_parts, tool_parts)
tool_pattern_lists = st.lists(tool_patterns, max_size=4)


def names_match(pattern: str, name: str) -> bool:
    """Return whether a part of a pattern names this: exactly, or by all but its last character, a star."""
    ending = ".*" if pattern.endswith("*") else ""
    return re.fullmatch(re.escape(pattern.removesuffix("*")) + ending, name, flags=re.DOTALL) is not None


def pattern_matches(pattern: str, server: str, tool: str) -> bool:
    """Return whether SERVER.TOOL names the tool. No server's part contains a dot."""
    server_part, tool_part = pattern.split(".", 1)
    return names_match(server_part, server) and names_match(tool_part, tool)


def decide(
    *,
    server: str,
    tool: str,
    hints: Mapping[str, object],
    execution: Sequence[str],
    pool_allow: Sequence[str],
    pool_deny: Sequence[str],
    server_allow: Sequence[str],
    server_deny: Sequence[str],
    rules: Sequence[tuple[Sequence[str], str]],
    destructive: str,
    default: str,
) -> str:
    """Return Allow, Approve, Deny (by the policy) or NotAllowed (by a list)."""
    if not any(pattern_matches(pattern, server, tool) for pattern in execution):
        return "NotAllowed"
    if not any(pattern_matches(pattern, server, tool) for pattern in pool_allow):
        return "NotAllowed"
    if any(pattern_matches(pattern, server, tool) for pattern in pool_deny):
        return "NotAllowed"
    if not any(names_match(pattern, tool) for pattern in server_allow):
        return "NotAllowed"
    if any(names_match(pattern, tool) for pattern in server_deny):
        return "NotAllowed"
    for names, action in rules:
        if any(names_match(name, tool) for name in names):
            return action
    if hints.get("destructiveHint") is True and hints.get("readOnlyHint") is not True:
        return destructive
    return default
