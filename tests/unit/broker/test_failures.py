"""The last line of a call that failed, and what is suggested."""

import pytest

from mcp_exec_broker.errors import (
    MAX_MESSAGE,
    Failure,
    Kind,
    Outcome,
    Reason,
    denied,
    lost,
    no_such_server,
    no_such_tool,
    not_made,
    protocol_error,
    timed_out,
    tool_failed,
    unavailable,
    wrong,
)
from mcp_exec_broker.suggestions import close_names


def test_the_line_has_all_that_the_code_may_want_to_know() -> None:
    failure = wrong(Reason.INVALID_ARGUMENTS, "no", parameters=["a*", "b"], suggestions=["a"])
    assert failure.at(tool="github.x", server="github").line() == {
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
    line = tool_failed("boom", content=[{"type": "text", "text": "boom"}]).line()
    assert line["content"] == [{"type": "text", "text": "boom"}]
    assert line["reason"] is None
    assert "parameters" not in line
    assert "content" not in denied(Reason.RATE_LIMITED, "no").line()


@pytest.mark.parametrize(
    ("failure", "kind", "outcome"),
    [
        (denied(Reason.NOT_ALLOWED, ""), Kind.DENIED, Outcome.DENIED),
        (denied(Reason.EXECUTION_ENDED, ""), Kind.DENIED, Outcome.CANCELLED),
        (timed_out(3), Kind.TIMEOUT, Outcome.TIMEOUT),
        (not_made(3, waited_for="a place"), Kind.TIMEOUT, Outcome.TIMEOUT),
        (lost(""), Kind.PROTOCOL, Outcome.LOST),
        (unavailable(""), Kind.PROTOCOL, Outcome.ERROR),
        (protocol_error(-32602, ""), Kind.PROTOCOL, Outcome.ERROR),
        (tool_failed(""), Kind.ERROR, Outcome.ERROR),
    ],
)
def test_the_audit_has_how_it_ended(failure: Failure, kind: Kind, outcome: Outcome) -> None:
    assert (failure.kind, failure.outcome) == (kind, outcome)


def test_a_long_message_is_bounded() -> None:
    assert len(tool_failed("x" * 100_000).message) == MAX_MESSAGE


def test_an_unknown_tool_or_server_gets_what_was_probably_meant() -> None:
    failure = no_such_tool("createIssue", server="github", known=["create_issue", "list_issues"])
    assert failure.suggestions == ["github.create_issue"]
    assert failure.message == "github has no tool 'createIssue'; did you mean github.create_issue?"
    assert no_such_server("githib", known=["github", "files"]).suggestions == ["github"]
    assert no_such_server("x", known=[]).line()["suggestions"] == []


def test_names_of_the_same_words_come_first() -> None:
    assert close_names("ListIssues", ["list_issue", "list_issues", "list_pulls"]) == ["list_issues", "list_issue"]
    assert close_names("issues", ["create_issue", "list_issues"])[0] == "list_issues"
    assert close_names("a", ["a"]) == []


def test_very_many_or_long_names_take_no_long_time() -> None:
    assert len(close_names("x" * 1_000_000, (f"{n}" * 100 for n in range(1_000_000)))) <= 3
