"""Tokens and money of the requests of a transcript, with and without prompt caching."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Count = Callable[[str], int]
INPUT, OUTPUT = 3.0, 15.0
"""US dollars per million tokens, as in the published arithmetic."""
WRITE, READ = 1.25, 0.1
"""Price of a token that is written to the cache or read from it, relative to an input token."""
MILLION: Final = 1_000_000


@dataclass(frozen=True, kw_only=True)
class ArmCost:
    """Tokens of all requests of one arm."""

    definitions: int
    """Tool definitions of one request."""
    turns: int
    input: int
    """Sum over all requests: without caching, each of them is paid in full."""
    output: int
    written: int
    """Tokens written to the cache if the conversation begins with an empty one."""
    read: int
    prefix: int
    """System prompt and definitions, which another conversation can have written before."""

    @property
    def tokens(self) -> int:
        """All tokens, input and output."""
        return self.input + self.output

    def money(self, pricing: str) -> float:
        """Return thousandths of a US dollar: "plain" without caching, "cached", or "warm" if the prefix is cached."""
        equivalent = {
            "plain": float(self.input),
            "cached": WRITE * self.written + READ * self.read,
            "warm": WRITE * (self.written - self.prefix) + READ * (self.read + self.prefix),
        }[pricing]
        return 1000 * (equivalent * INPUT + self.output * OUTPUT) / MILLION


def cost_of(
    count: Count, *, system: str, definitions: Sequence[Mapping[str, Any]], messages: Sequence[Mapping[str, Any]]
) -> ArmCost:
    """Return the cost of a conversation whose requests repeat prompt, definitions and all earlier messages."""
    defined = count(dump(definitions)) if definitions else 0
    prefix = count(system) + defined
    known = prefix
    found = {"turns": 0, "input": 0, "output": 0, "written": 0, "read": 0}
    cached = 0
    for message in messages:
        size = sum(count(text) for block in message["content"] for text in _texts(block))
        if message["role"] == "assistant":
            found["turns"] += 1
            found["input"] += known
            found["output"] += size
            found["written"] += known - cached
            found["read"] += cached
            cached = known
        known += size
    return ArmCost(definitions=defined, prefix=prefix, **found)


def define(server: str, tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool's definition as the direct mode offers it."""
    description = tool.get("description", "")
    return {"name": f"{server}__{tool['name']}", "description": description, "input_schema": tool["inputSchema"]}


def dump(value: Any) -> str:
    """Return compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _texts(block: Mapping[str, Any]) -> list[str]:
    if block["type"] == "text":
        return [block["text"]]
    if block["type"] == "tool_use":
        return [block["name"], dump(block["input"])]
    return [block["content"]]
