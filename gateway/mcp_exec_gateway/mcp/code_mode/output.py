"""Results of `run_code`: structured for programs, and a text that fits a model."""

import json
from collections.abc import Sequence
from typing import Any, Final

from mcp_types import CallToolResult, ContentBlock, TextContent

from mcp_exec_api.code_execution import Phase
from mcp_exec_api.notes import Note
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.util.text import shorten, shorten_json
from mcp_exec_gateway.http.json import replace_surrogates

MAX_CHARACTERS: Final = 20_000
"""Characters of a text for a model: about 5,000 tokens."""
OUTPUT_BYTES: Final = 24_576
"""`limits.outputBytes` of an execution: what more than the model can read would only cost memory and transport."""
_TITLE_CHARACTERS: Final = 300
"""Room for titles and advice."""
_PREVIEW_CHARACTERS: Final = 1000
_ADVICE: Final = (
    "(shortened in the middle: print less, for example counts, sums or the first rows; data stays in the sandbox)"
)

_ATTACHED: Final = (
    "(the run that the same call began before, whose answer was not delivered; call again to run the code again)"
)


def build_result(
    execution: Object,
    *,
    artifacts: Sequence[dict[str, Any]] = (),
    content: Sequence[ContentBlock] = (),
    attached: bool = False,
) -> CallToolResult:
    """Return the result of a finished execution. It is an error if the code failed.

    `artifacts` are those of the execution, with links; `content` shows them after the text. `attached` says that the
    same call began the run before, and that its client left without the answer.
    """
    status = execution["status"]
    structured = replace_surrogates(_build_structured(execution["metadata"]["name"], status))
    if attached:
        structured["attached"] = True
    if artifacts:
        structured["artifacts"] = list(artifacts)
    return CallToolResult(
        content=[TextContent(text=format_text(structured)), *content],
        structured_content=structured,
        is_error=status["phase"] != Phase.SUCCEEDED,
    )


def build_error(text: str) -> CallToolResult:
    """Return a result that says what was wrong with the call."""
    text = replace_surrogates(shorten(text, MAX_CHARACTERS))
    return CallToolResult(content=[TextContent(text=text)], is_error=True)


def _build_structured(name: str, status: Object) -> dict[str, Any]:
    output = status.get("output") or {}
    calls = status.get("toolCalls") or {}
    fields = {
        "execution": name,
        "phase": status["phase"],
        "reason": status.get("reason") or None,
        "stdout": output.get("stdout", ""),
        "stderr": output.get("stderr", ""),
        "truncated": bool(output.get("truncated")),
        "error": status.get("error"),
        "toolCalls": calls.get("byTool") if calls.get("total") else None,
        "skills": status.get("skills"),
        "notes": status.get("notes"),
        "milliseconds": (status.get("durations") or {}).get("total"),
    }
    structured = {key: value for key, value in fields.items() if value is not None}
    return structured | ({"result": output["result"]} if "result" in output else {})


def format_text(structured: dict[str, Any]) -> str:
    """Return the outcome of an execution as a text of at most MAX_CHARACTERS, important parts first."""
    sections = {name: text for name, text in _list_sections(structured) if text}
    shown = _share_room(sections)
    is_cut = structured["truncated"] or shown != sections
    parts = [shown[name] if name == "error" else _add_title(name, shown[name]) for name in sections]
    text = "\n\n".join([*parts, *([_ADVICE] if is_cut else [])]) or "The code ended without output."
    return f"{text}\n\n{_ATTACHED}" if structured.get("attached") else text


def _share_room(sections: dict[str, str]) -> dict[str, str]:
    """Shorten the longest sections, so that all of them fit and short ones stay whole."""
    shown, room = {}, MAX_CHARACTERS - _TITLE_CHARACTERS
    for number, name in enumerate(sorted(sections, key=lambda name: len(sections[name]))):
        shown[name] = shorten(sections[name], room // (len(sections) - number))
        room -= len(shown[name])
    return shown


def _list_sections(structured: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        ("error", _format_error(structured)),
        ("notes", _format_notes(structured)),
        ("result", _format_value(structured)),
        ("stdout", structured["stdout"].rstrip("\n")),
        ("stderr", structured["stderr"].rstrip("\n")),
        ("artifacts", _format_artifacts(structured)),
        ("skills", _format_skills(structured)),
    ]


def _add_title(name: str, text: str) -> str:
    return f"{name}: {text}" if name == "result" else f"{name}:\n{text}"


def _format_value(structured: dict[str, Any]) -> str:
    value = structured.get("result")
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    short, _ = shorten_json(value, MAX_CHARACTERS)
    return short if isinstance(short, str) else json.dumps(short, ensure_ascii=False)


def _format_artifacts(structured: dict[str, Any]) -> str:
    lines = []
    for item in structured.get("artifacts") or ():
        title = f" {item['title']!r}" if item.get("title") else ""
        lines.append(f"- {item['name']!r} ({item.get('mediaType', '')}, {item.get('bytes', 0)} bytes){title}")
        if item.get("preview"):
            lines.append(shorten(item["preview"], _PREVIEW_CHARACTERS))
    return "\n".join(lines)


def _format_notes(structured: dict[str, Any]) -> str:
    notes = [Note.model_validate(note) for note in structured.get("notes") or ()]
    return "\n".join(f"- {note}" for note in notes)


def _format_skills(structured: dict[str, Any]) -> str:
    skills = structured.get("skills") or {}
    lines = [f"- {name} was saved as a draft" for name in skills.get("saved") or ()]
    return "\n".join([*lines, *(f"- not saved: {text}" for text in skills.get("refused") or ())])


def _format_error(structured: dict[str, Any]) -> str:
    if structured["phase"] == Phase.SUCCEEDED:
        return ""
    error = structured.get("error") or {}
    reason = f" ({structured['reason']})" if structured.get("reason") else ""
    lines = [f"The code did not succeed: {structured['phase']}{reason}"]
    if error.get("traceback"):
        lines.append(error["traceback"].rstrip("\n"))
    elif error:
        lines.append(f"{error.get('type', '')}: {error.get('message', '')}".rstrip(": "))
    if calls := structured.get("toolCalls"):
        made = ", ".join(f"{tool} {count} times" for tool, count in calls.items())
        lines.append(f"Tools that were called before: {made}")
    return "\n".join(lines)
