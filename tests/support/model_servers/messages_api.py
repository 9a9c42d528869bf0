"""A loopback server of Anthropic's Messages API.

It holds its caller to the protocol as the real one does: a key, a version, and a result for each use of a tool. Each
answer begins with a thought. A thought is signed together with all that precedes it, and goes back as it came.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.support.model_servers.script import Block, Request, Turn, split, thinks
from tests.support.model_servers.server import ModelServer

KEY = "sk-ant-loopback"
_TYPES = {401: "authentication_error", 429: "rate_limit_error", 500: "api_error", 529: "overloaded_error"}
_MAX_MARKS = 4
_SIGNED = {"thinking": "signature", "redacted_thinking": "data"}
"""Kinds of thoughts, each with the field of its signature."""


class MessagesApi(ModelServer):
    """Answers requests of messages, as a whole or as a stream, and counts tokens."""

    path = "/v1/messages"

    def take(self, request: Request) -> Turn:
        """Return the next turn of the script, with a signed thought, but if the request wants none."""
        turn = super().take(request)
        wants_none = request.get("thinking", {}).get("type") == "disabled"
        if turn.status != 200 or not turn.blocks or wants_none:
            return turn
        blocks = turn.blocks if turn.blocks[0]["type"] in _SIGNED else [thinks("Let me see."), *turn.blocks]
        return replace(turn, blocks=[_sign(blocks[0], request, len(request["messages"])), *blocks[1:]])

    def find_problem(self, request: Request, headers: dict[str, str]) -> str:
        key = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        if key != KEY or not headers.get("anthropic-version"):
            return "no key, or no version"
        if json.dumps(request).count('"cache_control"') > _MAX_MARKS:
            return f"at most {_MAX_MARKS} blocks may have cache_control"
        if problem := _find_unsigned(request):
            return problem
        used: set[str] = set()
        for message in request["messages"]:
            if not message["content"]:
                return "content must not be empty"
            blocks = message["content"] if isinstance(message["content"], list) else []
            if used != {block["tool_use_id"] for block in blocks if block["type"] == "tool_result"}:
                return f"each of {used} needs a result in the next message"
            used = {block["id"] for block in blocks if block["type"] == "tool_use"}
        return "the last message uses tools" if used else ""

    def answer(self, path: str, request: Request) -> tuple[int, Any]:
        counts = path == "/v1/messages/count_tokens"
        return (200, {"input_tokens": len(json.dumps(request)) // 4}) if counts else (404, {})

    def refuse(self, status: int, message: str) -> Any:
        return {"type": "error", "error": {"type": _TYPES.get(status, "invalid_request_error"), "message": message}}

    def build(self, number: int, request: Request, turn: Turn) -> Any:
        has_uses = any(block["type"] == "tool_use" for block in turn.blocks)
        return {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": request["model"],
            "content": turn.blocks,
            "stop_reason": turn.stop or ("tool_use" if has_uses else "end_turn"),
            "stop_sequence": None,
            "usage": {
                "input_tokens": len(json.dumps(request)) // 4,
                "output_tokens": len(json.dumps(turn.blocks)) // 4,
                **turn.usage,
            },
        }

    def stream(self, number: int, request: Request, turn: Turn) -> Iterator[str]:
        message = self.build(number, request, turn)
        begun = {**message, "content": [], "stop_reason": None, "usage": {**message["usage"], "output_tokens": 1}}
        yield _event("message_start", message=begun)
        yield _event("ping")
        for index, block in enumerate(turn.blocks):
            yield from _stream_block(index, block, whole=not turn.cut)
            if turn.cut == "error":
                yield _event("error", error=self.refuse(529, "Overloaded")["error"])
            if turn.cut:
                return
        delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
        yield _event("message_delta", delta=delta, usage={"output_tokens": message["usage"]["output_tokens"]})
        yield _event("message_stop")


def _sign(thought: Block, request: Request, count: int) -> Block:
    """Return a thought with its signature: it is bound to the model and to the first messages of a request."""
    kept = {name: value for name, value in thought.items() if name != _SIGNED[thought["type"]]}
    begin = [request.get("model"), request.get("system"), request.get("tools"), request["messages"][:count], kept]
    signature = hashlib.sha256(json.dumps(_strip(begin), sort_keys=True).encode()).hexdigest()
    return {**thought, _SIGNED[thought["type"]]: signature}


def _strip(value: Any) -> Any:
    """Return JSON without what changes nothing for a model: marks of the cache, and texts as blocks."""
    if isinstance(value, list):
        return [_strip(each) for each in value]
    if not isinstance(value, dict):
        return value
    content = value.get("content")
    if "role" in value and isinstance(content, str):
        value = {**value, "content": [{"type": "text", "text": content}]}
    return {name: _strip(each) for name, each in value.items() if name != "cache_control"}


def _find_unsigned(request: Request) -> str:
    """Return the problem of the first answer whose thought is missing, changed or bound to another beginning."""
    for index, message in enumerate(request["messages"]):
        blocks = message["content"] if isinstance(message["content"], list) else []
        if message["role"] != "assistant" or request.get("thinking", {}).get("type") == "disabled":
            continue
        thoughts = [block for block in blocks if block["type"] in _SIGNED]
        if not thoughts and any(block["type"] == "tool_use" for block in blocks):
            found = blocks[0]["type"]
            return f"messages.{index}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{found}`"
        for thought in thoughts:
            if thought != _sign(thought, request, index):
                return f"messages.{index}.content.0: Invalid `signature` in `{thought['type']}` block"
    return ""


def _stream_block(index: int, block: Block, *, whole: bool) -> Iterator[str]:
    if block["type"] == "text":
        start, deltas = {**block, "text": ""}, [{"type": "text_delta", "text": part} for part in split(block["text"])]
    elif block["type"] == "tool_use":
        parts = split(json.dumps(block["input"]))
        start, deltas = {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": part} for part in parts]
    elif block["type"] == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": part} for part in split(block["thinking"])]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
        start = {**block, "thinking": "", "signature": ""}
    else:
        start, deltas = block, []
    yield _event("content_block_start", index=index, content_block=start)
    for delta in deltas if whole else deltas[:-1]:
        yield _event("content_block_delta", index=index, delta=delta)
    if whole:
        yield _event("content_block_stop", index=index)


def _event(kind: str, **fields: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"
