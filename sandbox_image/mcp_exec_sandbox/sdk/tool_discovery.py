"""Search of the tools that this execution may call, by what they do. Needs no network and no `await`.

from tool_discovery import search_tools
search_tools("open an issue", detail_level="with_description", limit=5)
"""

from mcp_exec_sandbox.tools.calls import search_tools

__all__ = ["search_tools"]
