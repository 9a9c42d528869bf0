"""What a scripted model answers: content, errors, and streams that end too early. The form is the Messages API's."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

Request = dict[str, Any]
Block = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One answer. Without a stop reason it is that of the content."""

    blocks: list[Block] = field(default_factory=list)
    stop: str | None = None
    usage: dict[str, int] = field(default_factory=dict)
    cut: Literal["", "reset", "clean", "error"] = ""
    """How a stream ends before its end: the connection is lost, the body is complete, or an error event comes."""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


Scripted = Turn | list[Block] | Callable[[Request], Turn | list[Block]]


def says(text: str) -> Block:
    return {"type": "text", "text": text}


def uses(name: str, **given: Any) -> Block:
    """Return a use of a tool; each has its own id."""
    return {"type": "tool_use", "id": "", "name": name, "input": given}


def thinks(text: str) -> Block:
    """Return a thought, which the Messages API signs."""
    return {"type": "thinking", "thinking": text, "signature": ""}


def refuses(text: str) -> Block:
    """Return the refusal of a model of OpenAI."""
    return {"type": "refusal", "refusal": text}


def refused(status: int, **headers: str) -> Turn:
    """Return an answer with an error; `retry_after_ms` becomes a header."""
    return Turn(status=status, headers={name.replace("_", "-"): value for name, value in headers.items()})


def results_in(request: Request) -> list[Block]:
    """Return the results of tools in the newest message of a request of the Messages API."""
    content = request["messages"][-1]["content"]
    return [block for block in content if block["type"] == "tool_result"]


def split(text: str, parts: int = 3) -> list[str]:
    """Return the parts of a text, as a stream has them."""
    size = max(1, -(-len(text) // parts))
    return [text[start : start + size] for start in range(0, len(text), size)]
