"""Texts of run_code for a model: bounded, with head and tail of what is long, and important parts first."""

from typing import Any

import pytest

from mcp_exec_gateway.events.position import StreamPosition
from mcp_exec_gateway.http.problems import HttpProblem
from mcp_exec_gateway.mcp.code_mode.output import MAX_CHARACTERS, build_error, build_result, format_text
from mcp_exec_gateway.mcp.transport.tokens import ApprovalToken, ResumePoint


def outcome(**fields: Any) -> dict[str, Any]:
    return {"execution": "e", "phase": "Succeeded", "stdout": "", "stderr": "", "truncated": False, **fields}


def test_a_run_without_output_says_so() -> None:
    assert format_text(outcome()) == "The code ended without output."
    assert format_text(outcome(result=None)) == "The code ended without output."


@pytest.mark.parametrize("value", [0, False, [], {}, ""])
def test_a_value_that_is_false_is_a_result(value: Any) -> None:
    text = format_text(outcome(result=value, stdout="x\n"))
    assert text.startswith("result: ") == (value != "")


def test_long_parts_keep_head_and_tail_and_the_text_its_limit() -> None:
    long = "a" + "x" * 100_000 + "z"
    error = {"type": "E", "traceback": long}
    for fields in (
        {"stdout": long},
        {"stderr": long},
        {"result": long},
        {"result": [long]},
        {"phase": "Failed", "error": error, "stdout": long, "stderr": long, "result": long},
    ):
        text = format_text(outcome(**fields))
        assert len(text) <= MAX_CHARACTERS
        assert "characters cut ...]" in text or "bytes cut ...]" in text
        assert text.endswith("data stays in the sandbox)")
    text = format_text(outcome(stdout=long))
    assert text.startswith("stdout:\nax")
    assert "xz\n\n(shortened" in text


def test_notes_follow_the_error_and_precede_the_output() -> None:
    notes = [
        {"kind": "ValueChanged", "path": "result.a", "message": "It is text."},
        {"kind": "OutputCut", "message": "Cut."},
    ]
    text = format_text(outcome(notes=notes, result={"a": "NaN"}, stdout="x"))
    assert text == 'notes:\n- result.a: It is text.\n- Cut.\n\nresult: {"a": "NaN"}\n\nstdout:\nx'


def test_output_that_the_sandbox_has_cut_advises_to_print_less() -> None:
    assert "print less" in format_text(outcome(stdout="x", truncated=True))


def test_text_that_is_no_unicode_is_shown_with_question_marks() -> None:
    output = {"stdout": "a\ud800", "stderr": "", "result": {"\udfff": ["b\ud800"]}}
    result = build_result({"metadata": {"name": "e"}, "status": {"phase": "Succeeded", "output": output}})
    assert result.structured_content["result"] == {"?": ["b?"]}
    assert result.content[0].text == 'result: {"?": ["b?"]}\n\nstdout:\na?'  # type: ignore[union-attr]
    assert build_error("a\ud800").content[0].text == "a?"  # type: ignore[union-attr]


def test_an_error_without_a_traceback_names_its_type() -> None:
    text = format_text(outcome(phase="TimedOut", reason="Timeout", error={"type": "Timeout", "message": "30 s"}))
    assert text == "The code did not succeed: TimedOut (Timeout)\nTimeout: 30 s"


def test_a_status_without_output_is_a_result() -> None:
    execution = {"metadata": {"name": "e"}, "status": {"phase": "Failed", "reason": "QueueFull"}}
    result = build_result(execution)
    assert result.is_error
    assert result.structured_content == {
        **{"execution": "e", "phase": "Failed", "reason": "QueueFull"},
        **{"stdout": "", "stderr": "", "truncated": False},
    }


def test_tokens_return_as_they_were_made_and_nothing_else_is_one() -> None:
    point = ResumePoint(
        execution="exec-1",
        position=StreamPosition(seq=3, stdout=2),
        request_id="7",
        progress_token=8,
        asked=(("a1", "sha256:x"),),
    )
    assert ResumePoint.parse(str(point), field="f") == point
    token = ApprovalToken(execution="exec-1", approval="a1", digest="sha256:x")
    assert ApprovalToken.parse(str(token)) == token
    for text in ("", "made up", str(point)[:-4], str(point) * 2, "W" * 100_000, "WzEsMiwzLDQsNV0"):
        assert ApprovalToken.parse("approval." + text) is None
        with pytest.raises(HttpProblem, match="f: not a token of this gateway"):
            ResumePoint.parse(text, field="f")


def test_the_token_of_a_run_with_many_approvals_and_long_ids_is_still_one() -> None:
    asked = tuple((f"{number:064}", "sha256:" + "f" * 64) for number in range(300))
    longest = "\U0001f600" * 256
    point = ResumePoint(
        execution="e" * 63, position=StreamPosition(), request_id=longest, progress_token=longest, asked=asked
    )
    assert ResumePoint.parse(str(point), field="f").asked == asked[-32:]
