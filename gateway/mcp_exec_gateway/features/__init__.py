"""What is added to the core: one folder a feature, with its routes, its service, its parameters and its examples."""

from typing import Final

from mcp_exec_gateway.core.dependencies import Feature
from mcp_exec_gateway.features.files.feature import FILES
from mcp_exec_gateway.features.mcp.feature import MCP
from mcp_exec_gateway.features.records.feature import RECORDS
from mcp_exec_gateway.features.rollouts.feature import ROLLOUTS
from mcp_exec_gateway.features.sessions.feature import SESSIONS
from mcp_exec_gateway.features.signin.feature import SIGN_IN
from mcp_exec_gateway.features.skills.feature import SKILLS
from mcp_exec_gateway.features.tools.feature import TOOLS

FEATURES: Final[dict[str, Feature]] = {
    "mcp": MCP,
    "tools": TOOLS,
    "sessions": SESSIONS,
    "skills": SKILLS,
    "files": FILES,
    "records": RECORDS,
    "rollouts": ROLLOUTS,
    "signin": SIGN_IN,
}
"""The features of the gateway by the names of their folders. One that adds to another comes after it."""
