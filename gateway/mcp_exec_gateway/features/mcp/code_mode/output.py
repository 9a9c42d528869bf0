"""Results of `run_code`: structured for programs, and a text that fits a model."""

import base64
import json
import logging
import re
from collections.abc import Sequence
from typing import Any, Final

from mcp_types import CallToolResult, ContentBlock, ImageContent, ResourceLink, TextContent

from mcp_exec_api.code_execution import Phase
from mcp_exec_api.code_findings import Note, NoteKind, add_note
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.kube.objects import Object
from mcp_exec_gateway.core.http.json import replace_surrogates
from mcp_exec_gateway.core.http.limits import Reservation
from mcp_exec_gateway.core.http.parameters import find_base_url
from mcp_exec_gateway.core.http.problems import HttpProblem
from mcp_exec_gateway.features.files.artifacts import list_artifacts
from mcp_exec_gateway.features.files.service import Files
from mcp_exec_gateway.features.mcp.budget import DEFAULT_TOKENS, TokenBudget, estimate_json, estimate_tokens
from mcp_exec_gateway.features.mcp.request import Sender
from mcp_exec_tools.text import shorten, shorten_json

log = logging.getLogger(__name__)

OUTPUT_BYTES: Final = 24_576
"""`limits.outputBytes` of an execution whose result has DEFAULT_TOKENS: what more than the model can read would only
cost memory and transport."""
_MAX_ERROR: Final = 20_000
_TITLE_CHARACTERS: Final = 300
"""Room for titles and advice."""
_PREVIEW_CHARACTERS: Final = 1000
_MAX_VALUE: Final = 100_000
_LITERAL: Final = re.compile(
    r"\s*(?:null|true|false|NaN|-?Infinity|-?(?:0|[1-9][0-9]{0,40})(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,3})?)?\s*"
)
"""A text that reads as another value, or as nothing, and is shown in quotes."""
_FIRST_LIMIT: Final = 3
"""Characters for each token of the structured content that its longest part has at first."""
_LIMIT_STEP: Final = 0.7
_LEAST_LIMIT: Final = 50
_ATTEMPTS: Final = 5
_ADVICE: Final = (
    "(shortened in the middle: print less, for example counts, sums or the first rows; GET /v1/executions/{execution} "
    "has up to {bytes} bytes of each part; data stays in the sandbox)"
)
_ATTACHED: Final = (
    "(the run that the same call began before, whose answer was not delivered; call again to run the code again)"
)
_WITHOUT_REMEDY: Final = frozenset({Reason.NONE, Reason.USER_ERROR, Reason.EXIT_CODE})
"""Reasons whose error says it all."""


def choose_output_bytes(tokens: int) -> int:
    """Return `limits.outputBytes` of an execution whose result may have so many tokens."""
    return max(OUTPUT_BYTES, OUTPUT_BYTES * tokens // DEFAULT_TOKENS)


def build_result(
    execution: Object,
    *,
    artifacts: Sequence[dict[str, Any]] = (),
    content: Sequence[ContentBlock] = (),
    attached: bool = False,
    longest_seconds: int | None = None,
    budget: TokenBudget | None = None,
) -> CallToolResult:
    """Return the result of a finished execution. It is an error if the code failed.

    `artifacts` are those of the execution, with links; `content` shows them after the text. `attached` says that the
    same call began the run before, and that its client left without the answer. `longest_seconds` is the longest time
    limit that the caller may choose.
    """
    status, budget = execution["status"], budget or TokenBudget()
    structured = replace_surrogates(_build_structured(execution["metadata"]["name"], status))
    if attached:
        structured["attached"] = True
    if artifacts:
        structured["artifacts"] = list(artifacts)
    text = format_text(structured, remedy=find_remedy(execution, longest_seconds=longest_seconds), budget=budget)
    return CallToolResult(
        content=[TextContent(text=text), *content],
        structured_content=_drop_empty(_fit_structured(structured, tokens=budget.structured)),
        is_error=status["phase"] != Phase.SUCCEEDED,
    )


def build_error(text: str) -> CallToolResult:
    """Return a result that says what was wrong with the call."""
    text = replace_surrogates(shorten(text, _MAX_ERROR))
    return CallToolResult(content=[TextContent(text=text)], is_error=True)


def find_remedy(execution: Object, *, longest_seconds: int | None) -> str:
    """Return what to do about the end of an execution; empty if its error says it, or if it succeeded."""
    status = execution["status"]
    if status["phase"] == Phase.TIMED_OUT:
        seconds = (execution.get("spec") or {}).get("timeoutSeconds", 0)
        if longest_seconds is None or seconds >= longest_seconds:
            return "do less in one call: it has the longest time limit that is allowed"
        return f"set timeout up to {longest_seconds}, or do less in one call"
    try:
        reason = Reason(status.get("reason") or "")
    except ValueError:
        return ""
    return "" if reason in _WITHOUT_REMEDY or status["phase"] == Phase.SUCCEEDED else reason.remedy


def _fit_structured(structured: dict[str, Any], *, tokens: int) -> dict[str, Any]:
    """Return structured content of at most so many tokens: head and tail of its longest parts, and a note."""
    shown, limit = structured, float(tokens * _FIRST_LIMIT)
    while estimate_json(shown) > tokens and limit > _LEAST_LIMIT:
        shown = _shorten_parts(structured, int(limit))
        cut = ", ".join(name for name in structured if shown[name] != structured[name])
        message = f"{cut}: shortened to fit a model; print less, or keep files in a workspace and read parts of them"
        notes = [Note.model_validate(note) for note in structured.get("notes") or ()]
        notes = add_note(notes, Note(kind=NoteKind.OUTPUT_CUT, message=message))
        shown |= {"truncated": True, "notes": [note.to_api() for note in notes]}
        limit *= _LIMIT_STEP
    return shown


def _drop_empty(structured: dict[str, Any]) -> dict[str, Any]:
    """Return structured content without what an empty field says: models are shown it as JSON."""
    empty = {"stdout": "", "stderr": "", "truncated": False}
    return {name: value for name, value in structured.items() if name not in empty or value != empty[name]}


def _shorten_parts(structured: dict[str, Any], limit: int) -> dict[str, Any]:
    """Return the content with parts of at most so many characters each; lists and maps keep their first items."""
    shown = {name: shorten_json(value, limit)[0] if name == "result" else value for name, value in structured.items()}
    for name in ("stdout", "stderr"):
        shown[name] = shorten(structured[name], limit)
    if error := structured.get("error"):
        shown["error"] = {
            key: shorten(value, limit // 2) if isinstance(value, str) else value for key, value in error.items()
        }
    if artifacts := structured.get("artifacts"):
        shown["artifacts"] = [
            {key: shorten(value, limit // 10) if key == "preview" else value for key, value in item.items()}
            for item in artifacts[: max(1, limit // 500)]
        ]
    if calls := structured.get("toolCalls"):
        shown["toolCalls"] = dict(list(calls.items())[: max(1, limit // 100)])
    if skills := structured.get("skills"):
        shown["skills"] = {
            key: [shorten(str(text), limit // 10) for text in texts[: max(1, limit // 500)]]
            for key, texts in skills.items()
        }
    return shown


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


def format_text(structured: dict[str, Any], *, remedy: str = "", budget: TokenBudget | None = None) -> str:
    """Return the outcome of an execution as a text that fits a model, important parts first.

    `remedy` says what to do about a failure.
    """
    budget = budget or TokenBudget()
    sections = {name: text for name, text in _list_sections(structured, remedy) if text}
    characters = budget.characters
    for _ in range(_ATTEMPTS):
        text = _join_sections(structured, sections, characters)
        if (tokens := estimate_tokens(text)) <= budget.text:
            break
        characters = characters * budget.text // tokens * 9 // 10
    return text


def _join_sections(structured: dict[str, Any], sections: dict[str, str], characters: int) -> str:
    ends = [_ATTACHED] if structured.get("attached") else []
    shown = _share_room(sections, characters - _TITLE_CHARACTERS - sum(map(len, ends)))
    if structured["truncated"] or shown != sections:
        ends.append(_ADVICE.format(execution=structured["execution"], bytes=OUTPUT_BYTES))
    parts = [shown[name] if name == "error" else _add_title(name, shown[name]) for name in sections]
    return "\n\n".join([*(parts or ["The code ended without output."]), *ends])


def _share_room(sections: dict[str, str], room: int) -> dict[str, str]:
    """Shorten the longest sections, so that all of them fit and short ones stay whole."""
    shown = {}
    for number, name in enumerate(sorted(sections, key=lambda name: len(sections[name]))):
        shown[name] = shorten(sections[name], room // (len(sections) - number))
        room -= len(shown[name])
    return shown


def _list_sections(structured: dict[str, Any], remedy: str) -> list[tuple[str, str]]:
    return [
        ("error", _format_error(structured, remedy)),
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
        return json.dumps(value, ensure_ascii=False) if _LITERAL.fullmatch(value) else value
    short, _ = shorten_json(value, _MAX_VALUE)
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


def _format_error(structured: dict[str, Any], remedy: str) -> str:
    if structured["phase"] == Phase.SUCCEEDED:
        return ""
    error = structured.get("error") or {}
    reason = f" ({structured['reason']})" if structured.get("reason") else ""
    lines = [f"The code did not succeed: {structured['phase']}{reason}"]
    kind, message, traceback = (str(error.get(name) or "") for name in ("type", "message", "traceback"))
    if (kind or message) and (not traceback or message not in traceback):
        # models see little more than this line
        lines.append(f"{kind}: {message}".strip(": ") + (f"; {remedy}" if remedy else ""))
    elif remedy:
        lines.append(f"What to do: {remedy}")
    if traceback:
        lines.append(traceback.rstrip("\n"))
    if calls := structured.get("toolCalls"):
        made = ", ".join(f"{tool} {count} times" for tool, count in calls.items())
        lines.append(f"Tools that were called before: {made}")
    return "\n".join(lines)


MAX_IMAGES: Final = 4
"""Images in one result: each costs a model some thousand tokens."""
MAX_IMAGE_BYTES: Final = 1024 * 1024
MAX_ALL_BYTES: Final = 2 * 1024 * 1024
"""Bytes of all images of one result."""
MAX_LINKS: Final = 20
_COPIES: Final = 4
"""Memory of an image in its bytes: read, encoded, in the result and in the response."""
_LINK_PREVIEW_CHARACTERS: Final = 200
_MAGIC: Final = {"image/png": b"\x89PNG\r\n\x1a\n", "image/jpeg": b"\xff\xd8\xff"}
"""First bytes of the formats that models see."""


def list_run_artifacts(sender: Sender, execution: Object) -> list[dict[str, Any]]:
    """Return an execution's artifacts with links, for structured content."""
    files = sender.dependencies.find(Files)
    if files is None:
        return []
    base_url = find_base_url(sender.http, public_url=sender.dependencies.settings.public_url)
    fields = ("id", "name", "mediaType", "bytes", "title", "preview", "url", "expiresAt")
    views = files.artifacts.list_views(execution, base_url=base_url)
    shown: list[dict[str, Any]] = replace_surrogates(
        [{name: view[name] for name in fields if view.get(name)} for view in views]
    )
    return shown


async def build_content(
    sender: Sender, execution: Object, listed: list[dict[str, Any]], *, memory: Reservation
) -> list[ContentBlock]:
    """Return the images that fit, then a link to each artifact, at most MAX_LINKS. The images count in `memory`.

    An image that can't be read is only a link: the outcome of the run does not depend on it.
    """
    images = [
        ImageContent(data=base64.b64encode(content).decode(), mime_type=item["mediaType"])
        for item in _choose_images(execution, memory)
        if (content := await _read_image(sender, execution, item)) is not None
    ]
    return [*images, *_build_links(listed, tokens=sender.options.budget.links)]


def _choose_images(execution: Object, memory: Reservation) -> list[Object]:
    """Return the first images that fit, and reserve memory for them; none if memory is short."""
    chosen: list[Object] = []
    room = MAX_ALL_BYTES
    for item in list_artifacts(execution):
        if item.get("mediaType") in _MAGIC and item["bytes"] <= min(room, MAX_IMAGE_BYTES) and len(chosen) < MAX_IMAGES:
            chosen.append(item)
            room -= item["bytes"]
    return chosen if memory.resize(memory.size + _COPIES * (MAX_ALL_BYTES - room)) else []


async def _read_image(sender: Sender, execution: Object, item: Object) -> bytes | None:
    try:
        content = await sender.dependencies.get(Files).artifacts.read(execution, item["id"], limit=item["bytes"])
    except HttpProblem as problem:
        log.info("artifact %s of %s is not shown: %s", item["id"], execution["metadata"]["name"], problem)
        return None
    return content if content is not None and find_image_type(content) == item["mediaType"] else None


def find_image_type(content: bytes) -> str | None:
    """Return the media type of an image that models see, by its first bytes, or None."""
    return next((media_type for media_type, magic in _MAGIC.items() if content.startswith(magic)), None)


def _build_links(listed: list[dict[str, Any]], *, tokens: int) -> list[ResourceLink]:
    """Return links to the first artifacts, as many as fit."""
    links = []
    for link in map(_build_link, listed[:MAX_LINKS]):
        tokens -= estimate_tokens(link.model_dump_json(by_alias=True, exclude_none=True))
        if tokens < 0:
            break
        links.append(link)
    return links


def _build_link(item: dict[str, Any]) -> ResourceLink:
    about = [item.get("title"), shorten(str(item.get("preview") or ""), _LINK_PREVIEW_CHARACTERS)]
    return ResourceLink(
        name=item["name"],
        uri=item["url"],
        mime_type=item.get("mediaType"),
        size=item.get("bytes"),
        description="\n".join(filter(None, about)) or None,
    )
