"""Estimated tokens, if a provider does not count them."""

import json
from typing import Final

from mcp_exec_client.agent.providers.model import Block, ModelRequest
from mcp_exec_tools.text import estimate_tokens

_MESSAGE: Final = 4
"""Tokens around each message."""


def estimate_input(request: ModelRequest) -> int:
    """Return the estimated input tokens of a request."""
    tools = sum(estimate_tokens(json.dumps(tool, ensure_ascii=False)) for tool in request.tools)
    messages = sum(_MESSAGE + _estimate_content(message["content"]) for message in request.messages)
    return estimate_tokens(request.system) + tools + messages


def estimate_reply(content: list[Block]) -> int:
    """Return the estimated output tokens of an answer."""
    return _estimate_content(content)


def _estimate_content(content: str | list[Block]) -> int:
    if isinstance(content, str):
        return estimate_tokens(content)
    return sum(
        estimate_tokens(block["text"] if block.get("type") == "text" else json.dumps(block, ensure_ascii=False))
        for block in content
    )
