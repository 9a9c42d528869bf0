"""A loopback server of Anthropic's Messages API.

It holds its caller to the protocol as the real one does: a key, a version, and a result for each use of a tool.
"""

import json
from collections.abc import Iterator
from typing import Any

from tests.support.model_servers.script import Block, Request, Turn, split
from tests.support.model_servers.server import ModelServer

KEY = "sk-ant-loopback"
_TYPES = {401: "authentication_error", 429: "rate_limit_error", 500: "api_error", 529: "overloaded_error"}
_MAX_MARKS = 4


class MessagesApi(ModelServer):
    """Answers requests of messages, as a whole or as a stream, and counts tokens."""

    path = "/v1/messages"

    def find_problem(self, request: Request, headers: dict[str, str]) -> str:
        key = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        if key != KEY or not headers.get("anthropic-version"):
            return "no key, or no version"
        if json.dumps(request).count('"cache_control"') > _MAX_MARKS:
            return f"at most {_MAX_MARKS} blocks may have cache_control"
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


def _stream_block(index: int, block: Block, *, whole: bool) -> Iterator[str]:
    if block["type"] == "text":
        start, deltas = {**block, "text": ""}, [{"type": "text_delta", "text": part} for part in split(block["text"])]
    elif block["type"] == "tool_use":
        parts = split(json.dumps(block["input"]))
        start, deltas = {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": part} for part in parts]
    else:
        start, deltas = block, []
    yield _event("content_block_start", index=index, content_block=start)
    for delta in deltas if whole else deltas[:-1]:
        yield _event("content_block_delta", index=index, delta=delta)
    if whole:
        yield _event("content_block_stop", index=index)


def _event(kind: str, **fields: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"
