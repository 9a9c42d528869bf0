"""What is added to the core: one folder a feature, with its routes, its service, its parameters and its examples."""

from typing import Final

from mcp_exec_gateway.core.dependencies import Feature
from mcp_exec_gateway.features.files import feature as files
from mcp_exec_gateway.features.mcp import feature as mcp
from mcp_exec_gateway.features.records import feature as records
from mcp_exec_gateway.features.rollouts import feature as rollouts
from mcp_exec_gateway.features.sessions import feature as sessions
from mcp_exec_gateway.features.skills import feature as skills
from mcp_exec_gateway.features.tools import feature as tools

FEATURES: Final[dict[str, Feature]] = {
    "mcp": mcp.FEATURE,
    "tools": tools.FEATURE,
    "sessions": sessions.FEATURE,
    "skills": skills.FEATURE,
    "files": files.FEATURE,
    "records": records.FEATURE,
    "rollouts": rollouts.FEATURE,
}
"""The features of the gateway by the names of their folders. One that adds to another comes after it."""
