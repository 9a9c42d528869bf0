"""A loopback server of OpenAI's Responses API.

It holds its caller to the protocol as the real one does: a key, an output for each call, and each reasoning item as it
came, before what it belongs to.
"""

import json
from collections.abc import Iterator
from typing import Any

from tests.support.model_servers.chat_api import KEY
from tests.support.model_servers.script import Block, Request, Turn, split
from tests.support.model_servers.server import ModelServer


class ResponsesApi(ModelServer):
    """Answers requests of responses, as streams. Each answer begins with a reasoning item."""

    path = "/v1/responses"
    conversation = "input"

    def find_problem(self, request: Request, headers: dict[str, str]) -> str:
        if headers.get("authorization") != f"Bearer {KEY}":
            return "no key"
        if request.get("store") is not False or "reasoning.encrypted_content" not in request.get("include", ()):
            return "nothing is stored here: the items must be complete"
        called: set[str] = set()
        before: Block = {}
        for item in request["input"]:
            kind = item.get("type", "message")
            if kind == "function_call" and before.get("type") not in ("reasoning", "function_call", None):
                return f"Item {item['call_id']!r} of type 'function_call' was provided without its 'reasoning' item"
            if kind == "reasoning" and item["encrypted_content"] != f"secret of {item['id']}":
                return f"Item {item['id']!r}: its content could not be verified"
            called |= {item["call_id"]} if kind == "function_call" else set()
            called -= {item["call_id"]} if kind == "function_call_output" else set()
            before = item
        return f"No tool output found for function call {called}" if called else ""

    def refuse(self, status: int, message: str) -> Any:
        return {"error": {"message": message, "type": "server_error" if status >= 500 else "invalid_request_error"}}

    def build(self, number: int, request: Request, turn: Turn) -> Any:
        reason = {"length": "max_output_tokens"}.get(turn.stop, turn.stop) if turn.stop else None
        return {
            "id": f"resp_{number}", "object": "response", "created_at": 1, "model": request["model"],
            "output": _build_items(number, turn), "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
            "status": "incomplete" if turn.stop else "completed",
            "incomplete_details": {"reason": reason} if reason else None, "usage": turn.usage or None,
        }  # fmt: skip

    def stream(self, number: int, request: Request, turn: Turn) -> Iterator[str]:
        response = self.build(number, request, turn)
        items = response["output"]
        for index, item in enumerate(items):
            for part in split(item["content"][0].get("text", "")) if item["type"] == "message" else ():
                place = {"output_index": index, "content_index": 0, "item_id": item["id"], "logprobs": []}
                yield _event("response.output_text.delta", delta=part, **place)
            yield _event("response.output_item.done", output_index=index, item=item)
        if not turn.cut:
            yield _event("response.incomplete" if turn.stop else "response.completed", response=response)


def _build_items(number: int, turn: Turn) -> list[Block]:
    reasoning = {
        "id": f"rs_{number}",
        "type": "reasoning",
        "summary": [],
        "encrypted_content": f"secret of rs_{number}",
    }
    return [reasoning, *(_build_item(number, block) for block in turn.blocks)]


def _build_item(number: int, block: Block) -> Block:
    if block["type"] in ("text", "refusal"):
        text = {"type": "output_text", "text": block.get("text"), "annotations": []}
        content = [text if block["type"] == "text" else block]
        return {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": content,
        }
    arguments = json.dumps(block["input"])
    return {
        "id": f"fc_{number}",
        "type": "function_call",
        "call_id": block["id"],
        "name": block["name"],
        "arguments": arguments,
    }


def _event(kind: str, **fields: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, 'sequence_number': 1, **fields})}\n\n"
