"""A loopback server of OpenAI's chat API.

It holds its caller to the protocol as the real one does: a key, `max_completion_tokens`, and a result for each call.
"""

import json
from collections.abc import Iterator
from typing import Any

from tests.support.model_servers.script import Block, Request, Turn, split
from tests.support.model_servers.server import ModelServer

KEY = "sk-loopback"


class ChatApi(ModelServer):
    """Answers requests of chat completions, as streams."""

    path = "/v1/chat/completions"

    def find_problem(self, request: Request, headers: dict[str, str]) -> str:
        if headers.get("authorization") != f"Bearer {KEY}":
            return "no key"
        if "max_tokens" in request:
            return "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
        called: list[str] = []
        for message in request["messages"]:
            if message["role"] == "tool":
                if not called or message["tool_call_id"] != called.pop(0):
                    return "a tool message must follow its tool call"
                continue
            if called:
                return f"calls without a tool message: {called}"
            called = [call["id"] for call in message.get("tool_calls", ())]
        return "the last message calls tools" if called else ""

    def refuse(self, status: int, message: str) -> Any:
        return {"error": {"message": message, "type": "server_error" if status >= 500 else "invalid_request_error"}}

    def build(self, number: int, request: Request, turn: Turn) -> Any:
        message: Block = {"role": "assistant", "content": None}
        calls = []
        for block in turn.blocks:
            if block["type"] == "tool_use":
                function = {"name": block["name"], "arguments": json.dumps(block["input"])}
                calls.append({"id": block["id"], "type": "function", "function": function})
            else:
                message["content"] = (message["content"] or "") + block["text"]
        message |= {"tool_calls": calls} if calls else {}
        stop = turn.stop or ("tool_calls" if calls else "stop")
        choice = {"index": 0, "message": message, "finish_reason": stop, "logprobs": None}
        usage = {"prompt_tokens": 70, "completion_tokens": 7, "total_tokens": 77, **turn.usage}
        head = {"id": f"chat_{number}", "object": "chat.completion", "created": 1, "model": request["model"]}
        return {**head, "choices": [choice], "usage": usage}

    def stream(self, number: int, request: Request, turn: Turn) -> Iterator[str]:
        def chunk(**fields: Any) -> str:
            body = {"id": f"chat_{number}", "object": "chat.completion.chunk", "created": 1, "model": request["model"]}
            return f"data: {json.dumps(body | fields)}\n\n"

        def choose(delta: Block, stop: str | None = None) -> str:
            return chunk(choices=[{"index": 0, "delta": delta, "finish_reason": stop}])

        yield choose({"role": "assistant", "content": ""})
        calls = 0
        for block in turn.blocks:
            if block["type"] == "refusal":
                yield from (choose({"refusal": part}) for part in split(block["refusal"]))
            elif block["type"] == "text":
                parts = split(block["text"])
                yield from (choose({"content": part}) for part in (parts[:-1] if turn.cut else parts))
            else:
                yield from (choose(delta) for delta in self.list_call_deltas(calls, block))
                calls += 1
            if turn.cut == "error":
                yield f"data: {json.dumps(self.refuse(500, 'The server had an error'))}\n\n"
            if turn.cut:
                return
        yield choose({}, turn.stop or ("tool_calls" if calls else "stop"))
        if turn.usage:
            yield chunk(choices=[], usage=turn.usage)
        yield "data: [DONE]\n\n"

    def list_call_deltas(self, index: int, block: Block) -> Iterator[Block]:
        """Yield the parts of a call, of which the first has id and name."""
        arguments = block["input"] if isinstance(block["input"], str) else json.dumps(block["input"])
        first, *parts = split(arguments) or [""]
        function = {"name": block["name"], "arguments": first}
        yield {"tool_calls": [{"index": index, "id": block["id"], "type": "function", "function": function}]}
        yield from ({"tool_calls": [{"index": index, "function": {"arguments": part}}]} for part in parts)
