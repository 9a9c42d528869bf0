"""A scripted model behind Anthropic's SDK, for a first try without a key. It answers one question, in both modes."""

import json
import uuid
from collections.abc import Iterator
from typing import Any

import httpx2

from mcp_exec_tools.text import estimate_tokens

QUESTION = "Which five customers wait for pending orders of the highest value?"
CODE = """\
from servers.shop import get_customer, list_orders

totals = {}
for order in await list_orders(status="pending"):
    totals[order["customer"]] = totals.get(order["customer"], 0) + order["amount"]
for customer_id in sorted(totals, key=lambda key: (-totals[key], key))[:5]:
    customer = await get_customer(customer_id=customer_id)
    print(f"{customer['name']} ({customer['country']}): {totals[customer_id]:.2f}")
"""
Block = dict[str, Any]


def plan(request: dict[str, Any]) -> list[Block]:
    """Return the next answer: uses of tools, or text."""
    messages = request["messages"]
    start = max(place for place, each in enumerate(messages) if isinstance(each["content"], str))
    if messages[start]["content"].strip() != QUESTION:
        return [says(f"Without a model, a script answers one question: {QUESTION}")]
    results = [block for each in messages[start + 1 :] for block in each["content"] if block["type"] == "tool_result"]
    failed = [each["content"] for each in results if each.get("is_error")]
    if failed:
        return [says(f"A tool failed: {failed[0]}")]
    if any(tool["name"] == "execute_code" for tool in request["tools"]):
        return [answer_by_code(results[0])] if results else [uses("execute_code", code=CODE)]
    if not results:
        return [uses("list_orders", status="pending")]
    totals = sum_orders(json.loads(results[0]["content"]))
    if len(results) == 1:
        return [uses("get_customer", customer_id=each) for each in totals]
    customers = [json.loads(each["content"]) for each in results[1:]]
    return [says("\n".join(f"{each['name']} ({each['country']}): {totals[each['id']]:.2f}" for each in customers))]


def sum_orders(orders: list[dict[str, Any]]) -> dict[str, float]:
    """Return the five customers with the highest sums."""
    totals: dict[str, float] = {}
    for order in orders:
        totals[order["customer"]] = totals.get(order["customer"], 0) + order["amount"]
    return {key: totals[key] for key in sorted(totals, key=lambda key: (-totals[key], key))[:5]}


def answer_by_code(result: Block) -> Block:
    """Return what the code printed, or its error."""
    outcome = json.loads(result["content"])
    return says(outcome.get("stdout", "").strip() or f"The code failed: {outcome.get('error') or outcome['phase']}")


def says(text: str) -> Block:
    """Return a text."""
    return {"type": "text", "text": text}


def uses(name: str, **given: Any) -> Block:
    """Return a use of a tool."""
    return {"type": "tool_use", "id": f"toolu_{uuid.uuid4().hex[:16]}", "name": name, "input": given}


def stream(request: dict[str, Any]) -> Iterator[str]:
    """Yield the events of the Messages API."""
    blocks = plan(request)
    stop = "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"
    spoken = json.dumps({name: request.get(name) for name in ("system", "tools", "messages")}, ensure_ascii=False)
    usage = {"input_tokens": estimate_tokens(spoken), "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": request["model"], "content": []}
    yield event("message_start", message={**message, "stop_reason": None, "stop_sequence": None, "usage": usage})
    for index, block in enumerate(blocks):
        is_text = block["type"] == "text"
        start = {**block, "text": ""} if is_text else {**block, "input": {}}
        yield event("content_block_start", index=index, content_block=start)
        if is_text:
            for word in block["text"].split(" "):
                yield event("content_block_delta", index=index, delta={"type": "text_delta", "text": word + " "})
        else:
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    written = estimate_tokens(json.dumps(blocks, ensure_ascii=False))
    delta = {"stop_reason": stop, "stop_sequence": None}
    yield event("message_delta", delta=delta, usage={"output_tokens": written})
    yield event("message_stop")


def event(kind: str, **fields: Any) -> str:
    """Return an event of a stream."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"


async def respond(request: httpx2.Request) -> httpx2.Response:
    """Answer a request of the SDK."""
    body = "".join(stream(json.loads(request.content)))
    return httpx2.Response(200, headers={"Content-Type": "text/event-stream"}, text=body)


def open_http() -> httpx2.AsyncClient:
    """Return the SDK's HTTP client, which reaches the script and nothing else."""
    return httpx2.AsyncClient(transport=httpx2.MockTransport(respond))
