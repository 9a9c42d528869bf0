"""Errors of calls: their lines and suggestions."""

import pytest

from mcp_exec_broker.core.errors import (
    MAX_MESSAGE,
    CallOutcome,
    ErrorKind,
    ErrorReason,
    ToolCallError,
    build_denial,
    build_lost_error,
    build_protocol_error,
    build_rejection,
    build_timeout,
    build_tool_error,
    build_unavailable_error,
    build_unknown_server_error,
    build_unknown_tool_error,
    build_wait_timeout,
)
from mcp_exec_tools.names import find_close_names


def test_the_line_has_all_that_the_code_may_want_to_know() -> None:
    failure = build_rejection(ErrorReason.INVALID_ARGUMENTS, "no", parameters=["a*", "b"], suggestions=["a"])
    assert failure.add_names(tool="github.x", server="github").to_line() == {
        "type": "error",
        "kind": "ToolError",
        "tool": "github.x",
        "server": "github",
        "message": "no",
        "code": None,
        "reason": "InvalidArguments",
        "suggestions": ["a"],
        "parameters": ["a*", "b"],
    }


def test_what_is_not_known_is_left_out() -> None:
    line = build_tool_error("boom", content=[{"type": "text", "text": "boom"}]).to_line()
    assert line["content"] == [{"type": "text", "text": "boom"}]
    assert line["reason"] is None
    assert "parameters" not in line
    assert "content" not in build_denial(ErrorReason.RATE_LIMITED, "no").to_line()


@pytest.mark.parametrize(
    ("failure", "kind", "outcome"),
    [
        (build_denial(ErrorReason.NOT_ALLOWED, ""), ErrorKind.DENIED, CallOutcome.DENIED),
        (build_denial(ErrorReason.EXECUTION_ENDED, ""), ErrorKind.DENIED, CallOutcome.CANCELLED),
        (build_timeout(3), ErrorKind.TIMEOUT, CallOutcome.TIMEOUT),
        (build_wait_timeout(3, waited_for="a place"), ErrorKind.TIMEOUT, CallOutcome.TIMEOUT),
        (build_lost_error(""), ErrorKind.PROTOCOL, CallOutcome.LOST),
        (build_unavailable_error(""), ErrorKind.PROTOCOL, CallOutcome.ERROR),
        (build_protocol_error(-32602, ""), ErrorKind.PROTOCOL, CallOutcome.ERROR),
        (build_tool_error(""), ErrorKind.ERROR, CallOutcome.ERROR),
    ],
)
def test_the_audit_has_how_it_ended(failure: ToolCallError, kind: ErrorKind, outcome: CallOutcome) -> None:
    assert (failure.kind, failure.outcome) == (kind, outcome)


def test_a_long_message_is_bounded() -> None:
    assert len(build_tool_error("x" * 100_000).message) == MAX_MESSAGE


def test_an_unknown_tool_or_server_gets_what_was_probably_meant() -> None:
    failure = build_unknown_tool_error("createIssue", server="github", known=["create_issue", "list_issues"])
    assert failure.suggestions == ["github.create_issue"]
    assert failure.message == "github has no tool 'createIssue'; did you mean github.create_issue?"
    assert build_unknown_server_error("githib", known=["github", "files"]).suggestions == ["github"]
    assert build_unknown_server_error("x", known=[]).to_line()["suggestions"] == []


def test_names_of_the_same_words_come_first() -> None:
    assert find_close_names("ListIssues", ["list_issue", "list_issues", "list_pulls"]) == ["list_issues", "list_issue"]
    assert find_close_names("issues", ["create_issue", "list_issues"])[0] == "list_issues"
    assert find_close_names("a", ["a"]) == []
    assert find_close_names("Create-Isue", ["create_issue", "delete_repo"]) == ["create_issue"]
    assert find_close_names("zzz", ["create_issue"]) == []


def test_very_many_or_long_names_take_no_long_time() -> None:
    assert len(find_close_names("x" * 1_000_000, (f"{n}" * 100 for n in range(1_000_000)))) <= 3
