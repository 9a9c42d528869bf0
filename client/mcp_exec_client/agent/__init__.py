"""Agents that work by code: parts for an application's own loop, and a complete conversation.

`CodeMode` has the parts; `Agent` is the conversation. The providers import their SDK when they are used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from mcp_exec_client.agent.agent import Agent
from mcp_exec_client.agent.modes import HybridRules, ModeChoice, TaskProfile
from mcp_exec_client.agent.outcomes import (
    AgentAnswer,
    AgentError,
    AgentEvent,
    AgentLimits,
    AgentStep,
    ApprovalAnswer,
    ApprovalQuestion,
    ConversationUsage,
    LimitReached,
    Mode,
    ModelError,
    OnApproval,
    OnEvent,
    RunEvent,
    RunTrace,
    TextDelta,
    TextDropped,
    TokenPrice,
)
from mcp_exec_client.agent.providers.model import ModelProvider, ModelReply, ModelRequest, TokenCounts
from mcp_exec_client.agent.providers.offline import OfflineProvider
from mcp_exec_client.agent.toolsets.code_mode import TOOLS, CodeMode
from mcp_exec_client.agent.toolsets.direct_mode import DirectMode
from mcp_exec_client.agent.toolsets.results import MAX_RESULT_CHARACTERS, describe_execution

if TYPE_CHECKING:
    from mcp_exec_client.agent.providers.anthropic_messages import AnthropicProvider as AnthropicProvider
    from mcp_exec_client.agent.providers.openai_chat import OpenAIProvider as OpenAIProvider

_PROVIDERS: Final = {"AnthropicProvider": "anthropic_messages", "OpenAIProvider": "openai_chat"}
"""Module of each provider."""
__all__ = [
    "MAX_RESULT_CHARACTERS",
    "TOOLS",
    "Agent",
    "AgentAnswer",
    "AgentError",
    "AgentEvent",
    "AgentLimits",
    "AgentStep",
    "AnthropicProvider",
    "ApprovalAnswer",
    "ApprovalQuestion",
    "CodeMode",
    "ConversationUsage",
    "DirectMode",
    "HybridRules",
    "LimitReached",
    "Mode",
    "ModeChoice",
    "ModelError",
    "ModelProvider",
    "ModelReply",
    "ModelRequest",
    "OfflineProvider",
    "OnApproval",
    "OnEvent",
    "OpenAIProvider",
    "RunEvent",
    "RunTrace",
    "TaskProfile",
    "TextDelta",
    "TextDropped",
    "TokenCounts",
    "TokenPrice",
    "describe_execution",
]


def __getattr__(name: str) -> Any:
    if name not in _PROVIDERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.providers.{_PROVIDERS[name]}"), name)
