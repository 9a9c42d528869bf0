"""The shop's tools for a model that calls them directly."""

import asyncio
import inspect
import json
from collections.abc import Callable
from typing import Any

from chat_app.shop import TOOLS

SYSTEM = "You are the assistant of a shop's staff. Answer by the shop's data, in a few sentences."
MAX_RESULT = 100_000
"""Most characters of one result."""


def define(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the definition of a tool; all its parameters are texts."""
    parameters = inspect.signature(function).parameters
    return {
        "name": function.__name__,
        "description": inspect.getdoc(function),
        "input_schema": {
            "type": "object",
            "properties": {name: {"type": "string"} for name in parameters},
            "required": [name for name, each in parameters.items() if each.default is each.empty],
            "additionalProperties": False,
        },
    }


DEFINITIONS = [define(function) for function in TOOLS.values()]


async def call_tool(use: dict[str, Any]) -> dict[str, Any]:
    """Call a tool and return the `tool_result` block."""
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": use["id"]}
    function = TOOLS.get(use["name"])
    try:
        if function is None:
            raise ValueError(f"there is no tool {use['name'][:50]!r}")
        if not all(isinstance(value, str) for value in use["input"].values()):
            raise ValueError("all arguments are texts")
        result = await asyncio.to_thread(function, **use["input"])
    except (TypeError, ValueError) as error:
        return {**block, "content": str(error), "is_error": True}
    return {**block, "content": json.dumps(result)[:MAX_RESULT]}
