"""Agents that work by code: parts for an application's own loop, and a complete conversation.

`CodeMode` has the parts; `Agent` is the conversation. The providers import their SDK when they are used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from mcp_exec_client.agent.agent import Agent as Agent
from mcp_exec_client.agent.approvals import ApprovalAnswer as ApprovalAnswer
from mcp_exec_client.agent.approvals import ApprovalQuestion as ApprovalQuestion
from mcp_exec_client.agent.approvals import OnApproval as OnApproval
from mcp_exec_client.agent.budget import AgentLimits as AgentLimits
from mcp_exec_client.agent.budget import TokenPrice as TokenPrice
from mcp_exec_client.agent.code_mode import TOOLS as TOOLS
from mcp_exec_client.agent.code_mode import CodeMode as CodeMode
from mcp_exec_client.agent.direct_mode import DirectMode as DirectMode
from mcp_exec_client.agent.hybrid_rules import HybridRules as HybridRules
from mcp_exec_client.agent.hybrid_rules import ModeChoice as ModeChoice
from mcp_exec_client.agent.hybrid_rules import TaskProfile as TaskProfile
from mcp_exec_client.agent.outcomes import MAX_RESULT_CHARACTERS as MAX_RESULT_CHARACTERS
from mcp_exec_client.agent.outcomes import AgentAnswer as AgentAnswer
from mcp_exec_client.agent.outcomes import AgentError as AgentError
from mcp_exec_client.agent.outcomes import AgentEvent as AgentEvent
from mcp_exec_client.agent.outcomes import AgentStep as AgentStep
from mcp_exec_client.agent.outcomes import ConversationUsage as ConversationUsage
from mcp_exec_client.agent.outcomes import LimitReached as LimitReached
from mcp_exec_client.agent.outcomes import Mode as Mode
from mcp_exec_client.agent.outcomes import ModelError as ModelError
from mcp_exec_client.agent.outcomes import OnEvent as OnEvent
from mcp_exec_client.agent.outcomes import RunEvent as RunEvent
from mcp_exec_client.agent.outcomes import RunTrace as RunTrace
from mcp_exec_client.agent.outcomes import TextDelta as TextDelta
from mcp_exec_client.agent.outcomes import TextDropped as TextDropped
from mcp_exec_client.agent.outcomes import ToolsRefused as ToolsRefused
from mcp_exec_client.agent.outcomes import Waiting as Waiting
from mcp_exec_client.agent.outcomes import describe_execution as describe_execution
from mcp_exec_client.agent.providers.fallback import FallbackProvider as FallbackProvider
from mcp_exec_client.agent.providers.model import ModelProvider as ModelProvider
from mcp_exec_client.agent.providers.model import ModelReply as ModelReply
from mcp_exec_client.agent.providers.model import ModelRequest as ModelRequest
from mcp_exec_client.agent.providers.model import TokenCounts as TokenCounts
from mcp_exec_client.agent.providers.offline import OfflineProvider as OfflineProvider
from mcp_exec_client.model_options import DEFAULT_MODEL as DEFAULT_MODEL

if TYPE_CHECKING:
    from mcp_exec_client.agent.providers.anthropic_messages import AnthropicProvider as AnthropicProvider
    from mcp_exec_client.agent.providers.openai import OpenAIProvider as OpenAIProvider
    from mcp_exec_client.agent.providers.openai import OpenAIResponsesProvider as OpenAIResponsesProvider

_PROVIDERS: Final = {
    "AnthropicProvider": "anthropic_messages",
    "OpenAIProvider": "openai",
    "OpenAIResponsesProvider": "openai",
}
"""Module of each provider."""


def __getattr__(name: str) -> Any:
    if name not in _PROVIDERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.providers.{_PROVIDERS[name]}"), name)
