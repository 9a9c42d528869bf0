"""Uses of tools that a model writes as text: small models and servers without a parser do so."""

import json
import re
from collections.abc import Collection
from typing import Any, Final

from mcp_exec_client.agent.providers.model import Block

_MAX_TEXT: Final = 256 * 1024
"""Most characters of an answer that is read as a call."""
_THOUGHT: Final = re.compile(r"^\s*<think>.*?</think>", re.DOTALL)
_WRAPPED: Final = re.compile(
    r"(?:<tool_call>|\[TOOL_CALLS\]|<\|python_tag\|>|```(?:json|tool_call)?\n)(?P<inner>.*?)(?:</tool_call>|```|$)",
    re.DOTALL,
)
"""How Qwen and Hermes, Mistral and Llama mark calls, and a fenced block."""


def read_written_calls(text: str, names: Collection[str]) -> list[Block]:
    """Return the uses of these tools that an answer consists of; none if it has anything else, such as other words."""
    if len(text) > _MAX_TEXT:
        return []
    written = _THOUGHT.sub("", text, count=1).strip()
    parts = [written]
    if not written.startswith(("{", "[{")):
        if _WRAPPED.sub("", written).strip():
            return []
        parts = [found["inner"] for found in _WRAPPED.finditer(written)]
    calls = []
    for part in parts:
        try:
            value = json.loads(part)
        except (ValueError, RecursionError):
            return []
        calls += [_read_call(each, names) for each in (value if isinstance(value, list) else [value])]
    uses = [call for call in calls if call is not None]
    return uses if len(uses) == len(calls) else []


def _read_call(value: Any, names: Collection[str]) -> Block | None:
    call = value.get("function") if isinstance(value, dict) and isinstance(value.get("function"), dict) else value
    if not isinstance(call, dict) or call.get("name") not in names:
        return None
    given = call.get("arguments", call.get("parameters"))
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            return None
    return {"type": "tool_use", "id": "", "name": call["name"], "input": given} if isinstance(given, dict) else None
