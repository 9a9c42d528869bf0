"""Models that stand in for one that fails."""

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from mcp_exec_client.agent.outcomes import ModelError, ToolsRefused
from mcp_exec_client.agent.providers.endpoint import Endpoint, find_endpoint
from mcp_exec_client.agent.providers.model import Block, ModelProvider, ModelReply, ModelRequest, PassText, TokenCounts
from mcp_exec_client.agent.providers.offline import OfflineProvider

log = logging.getLogger(__name__)
_CUTS: Final = 2
"""Failures in a row that are for good, fewer than the attempts of `AgentLimits.cut_answers`."""


class FallbackProvider:
    """Asks a model, and once it fails for good or refuses the next one, which answers for the rest of the conversation.

    The agent asks again after a failure that a repeated request may not have; the second one in a row is for good. What
    the failed model saw and wrote goes to the next one as text: thoughts and uses of tools are bound to the model that
    had them.
    """

    def __init__(self, providers: Sequence[ModelProvider]) -> None:
        if not providers:
            raise ValueError("providers is empty; it needs one or more")
        self._providers = list(providers)
        self._cut = 0
        """Failures in a row that a repeated request may not have."""
        self._earlier: list[Block] = []
        """Messages of requests that a model failed at."""

    @property
    def model(self) -> str:
        """Name of the model that answers now."""
        return self._providers[0].model

    @property
    def endpoint(self) -> Endpoint | str:
        """The API that is asked now."""
        return find_endpoint(self._providers[0])

    @property
    def supports_tools(self) -> bool:
        """Whether all models can use tools: the conversation is set up once."""
        return all(provider.supports_tools for provider in self._providers)

    async def reply(self, request: ModelRequest, *, on_text: PassText) -> ModelReply:
        """Return the answer of the first model that gives one. Raises ModelError if the last one fails."""
        while True:
            try:
                reply = await self._providers[0].reply(self._translate(request), on_text=on_text)
                self._cut = 0
                if reply.stop not in ("refusal", "filtered") or len(self._providers) == 1:
                    return reply
                why = f"refused: {reply.text}"
            except ModelError as error:
                self._cut += error.retryable
                asks_again = isinstance(error, ToolsRefused) or (error.retryable and self._cut < _CUTS)
                if asks_again or len(self._providers) == 1:
                    raise
                why = f"failed: {error}"
                if error.retryable:
                    self._replace(request, why)
                    raise  # the text that was passed on is void
            self._replace(request, why)

    def _replace(self, request: ModelRequest, why: str) -> None:
        """Let the next model go on."""
        failed = self._providers.pop(0)
        self._cut = 0
        self._earlier.extend(message for message in request.messages if message not in self._earlier)
        log.warning("model %s %s; model %s goes on", failed.model, why, self.model)

    async def count_tokens(self, request: ModelRequest) -> TokenCounts:
        """Return the input tokens of a request, as the model that answers now counts them. Raises ModelError."""
        return await self._providers[0].count_tokens(self._translate(request))

    def _translate(self, request: ModelRequest) -> ModelRequest:
        """Return the request as the model that answers now may have it. The scripted model thinks nothing."""
        if not self._earlier or isinstance(self._providers[0], OfflineProvider):
            return request
        messages = [write_as_text(message) if message in self._earlier else message for message in request.messages]
        return replace(request, messages=messages)


def write_as_text(message: Block) -> Block:
    """Return a message as text, without thoughts."""
    content = message["content"]
    if isinstance(content, str):
        return message
    return {**message, "content": "\n".join(_list_texts(content)) or "(no text)"}


def _list_texts(content: list[Block]) -> Iterator[str]:
    for block in content:
        if block["type"] == "text" and block["text"]:
            yield block["text"]
        elif block["type"] == "tool_use":
            yield f"[use {block['id']} of {block['name']}: {json.dumps(block['input'], ensure_ascii=False)}]"
        elif block["type"] == "tool_result":
            failed = "error" if block.get("is_error") else "result"
            yield f"[{failed} of use {block['tool_use_id']}: {block['content']}]"
