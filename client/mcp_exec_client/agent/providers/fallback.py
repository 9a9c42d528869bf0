"""Models that stand in for one that fails."""

import logging
from collections.abc import Sequence

from mcp_exec_client.agent.outcomes import ModelError
from mcp_exec_client.agent.providers.model import ModelProvider, ModelReply, ModelRequest, PassText, TokenCounts

log = logging.getLogger(__name__)


class FallbackProvider:
    """Asks a model, and once it has failed for good the next one, which then answers for the rest of the conversation.

    A failure that a repeated request may not have is not for good: the agent asks again.
    """

    def __init__(self, providers: Sequence[ModelProvider]) -> None:
        if not providers:
            raise ValueError("providers is empty; it needs one or more")
        self._providers = list(providers)

    @property
    def model(self) -> str:
        """Name of the model that answers now."""
        return self._providers[0].model

    @property
    def supports_tools(self) -> bool:
        """Whether all models can use tools: the conversation is set up once."""
        return all(provider.supports_tools for provider in self._providers)

    async def reply(self, request: ModelRequest, *, on_text: PassText) -> ModelReply:
        """Return the answer of the first model that gives one. Raises ModelError if the last one fails."""
        while True:
            try:
                return await self._providers[0].reply(request, on_text=on_text)
            except ModelError as error:
                if error.retryable or len(self._providers) == 1:
                    raise
                failed = self._providers.pop(0)
                log.warning("model %s failed, model %s goes on: %s", failed.model, self.model, error)

    async def count_tokens(self, request: ModelRequest) -> TokenCounts:
        """Return the input tokens of a request, as the model that answers now counts them. Raises ModelError."""
        return await self._providers[0].count_tokens(request)
