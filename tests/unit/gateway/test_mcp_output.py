"""Texts of run_code for a model: bounded, with head and tail of what is long, and important parts first."""

import json
from typing import Any

import pytest

from mcp_exec_gateway.core.events.follower import StreamPosition
from mcp_exec_gateway.core.http.problems import HttpProblem
from mcp_exec_gateway.features.mcp.budget import TokenBudget, cut_to_tokens, estimate_json, estimate_tokens
from mcp_exec_gateway.features.mcp.code_mode.output import build_error, build_result, format_text
from mcp_exec_gateway.features.mcp.transport.tokens import ApprovalToken, ResumePoint


def outcome(**fields: Any) -> dict[str, Any]:
    return {"execution": "e", "phase": "Succeeded", "stdout": "", "stderr": "", "truncated": False, **fields}


def test_a_run_without_output_says_so() -> None:
    assert format_text(outcome()) == "The code ended without output."
    assert format_text(outcome(result=None)) == "The code ended without output."


@pytest.mark.parametrize("value", [0, False, [], {}, ""])
def test_a_value_that_is_false_is_a_result(value: Any) -> None:
    text = format_text(outcome(result=value, stdout="x\n"))
    assert text.startswith(f"result: {json.dumps(value)}\n")


@pytest.mark.parametrize("value", ["null", "true", "3", "-0.5e3", "NaN", " ", "\n", " null"])
def test_a_text_that_reads_as_another_value_is_in_quotes(value: str) -> None:
    assert format_text(outcome(result=value)) == f"result: {json.dumps(value)}"


@pytest.mark.parametrize("value", ["nothing", "2026-11-28", "007", "1.2.3", '{"a": 1}', "3 rows", "1" * 100])
def test_any_other_text_is_as_it_is(value: str) -> None:
    assert format_text(outcome(result=value)) == f"result: {value}"


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
        assert len(text) <= 20_000
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
    assert result.structured_content == {"execution": "e", "phase": "Failed", "reason": "QueueFull"}


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


LONG: list[Any] = [
    "a word and another " * 7_000,
    "0123456789" * 12_000,
    "".join(f"{number}," for number in range(25_000)),
    "\u4e2d\u6587" * 20_000,
    "\U0001f600" * 30_000,
    list(range(25_000)),
    [{"id": number, "name": f"row {number}"} for number in range(4_000)],
    {f"key {number}": [number] for number in range(10_000)},
]


def finished(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "exec-1"}, "spec": {"timeoutSeconds": 2}, "status": {"phase": "Succeeded", **status}}


@pytest.mark.parametrize("number", range(len(LONG)))
def test_a_result_of_any_kind_fits_all_forms_of_its_content_into_the_budget(number: int) -> None:
    value = LONG[number]
    text = value if isinstance(value, str) else str(value)
    error = {"type": "E", "message": text, "traceback": text}
    artifacts = [{"id": str(each), "name": text[:200], "preview": text[:3000]} for each in range(100)]
    for output in (
        {"stdout": text},
        {"stderr": text},
        {"result": value},
        {"stdout": text, "stderr": text, "result": value},
    ):
        execution = finished(output=output, error=error, toolCalls={"total": 9, "byTool": {"a.b": 9}})
        for tokens in (2_000, 25_000):
            budget = TokenBudget(tokens=tokens)
            result = build_result(execution, artifacts=artifacts, budget=budget)
            structured = result.structured_content
            shown = result.content[0].text  # type: ignore[union-attr]
            assert estimate_tokens(shown) + estimate_json(structured) <= tokens
            assert structured["truncated"]
            (note,) = structured["notes"]
            assert note["kind"] == "OutputCut"
            assert "shortened to fit a model; print less" in note["message"]
            assert "GET /v1/executions/exec-1 has up to 24576 bytes" in shown


def test_a_result_that_fits_is_whole_and_has_no_note() -> None:
    output = {"stdout": "x" * 15_000, "stderr": "", "result": list(range(500)), "truncated": False}
    structured = build_result(finished(output=output)).structured_content
    assert (structured["stdout"], structured["result"]) == (output["stdout"], output["result"])
    assert structured.keys().isdisjoint({"truncated", "notes", "stderr"})


@pytest.mark.parametrize("text", LONG[:5])
def test_a_text_is_cut_to_a_number_of_tokens(text: str) -> None:
    cut = cut_to_tokens(text, 1000)
    assert 700 < estimate_tokens(cut) <= 1000
    assert text.startswith(cut)
    assert cut_to_tokens("short", 1000) == "short"


def test_an_estimate_is_rather_more_than_models_count() -> None:
    assert estimate_tokens("The quick brown fox jumps over the lazy dog. " * 100) >= 1000
    assert estimate_tokens("3141592653" * 100) >= 334
    assert estimate_tokens("\u4e2d" * 100) >= 100


REMEDIES = [
    ("TimedOut", "Timeout", 300, "Timeout: it ran; set timeout up to 300, or do less in one call"),
    ("TimedOut", "Timeout", 2, "Timeout: it ran; do less in one call: it has the longest time limit that is allowed"),
    ("Failed", "OutOfMemory", 300, "OutOfMemory: it ran; keep less data in memory, or raise the pool's"),
    ("Failed", "ProcessLimit", 300, "ProcessLimit: it ran; start fewer processes and threads, or raise the pool's"),
    ("Failed", "OfALaterVersion", 300, "OfALaterVersion: it ran\nTraceback"),
]


@pytest.mark.parametrize(("phase", "reason", "longest", "expected"), REMEDIES)
def test_a_failure_says_what_happened_and_what_to_do(phase: str, reason: str, longest: int, expected: str) -> None:
    error = {"type": reason, "message": "it ran", "traceback": "Traceback ...\n    while True: pass"}
    execution = finished(phase=phase, reason=reason, error=error)
    text = build_result(execution, longest_seconds=longest).content[0].text  # type: ignore[union-attr]
    assert text.startswith(f"The code did not succeed: {phase} ({reason})\n{expected}")
    assert "while True: pass" in text
