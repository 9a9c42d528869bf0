"""Client of MCP tools for code that runs in this sandbox.

    from client import call_mcp_tool, ToolError
    issue = await call_mcp_tool("github.create_issue", {"owner": "o", "repo": "r", "title": "Bug"})

The functions under `servers` do the same with types: `from servers.github import create_issue`.
`progress(done, total, text)` reports how far the code is; `show(value, name, title)` shows a figure, a table or a file.
`except ToolError` catches every failure; ToolDenied, ToolTimeout and ToolProtocolError are kinds of it.
"""

from mcp_exec_sandbox.tools.arguments import merge_arguments as bind_arguments
from mcp_exec_sandbox.tools.calls import call_mcp_tool, call_wrapped
from mcp_exec_sandbox.tools.display.show import show
from mcp_exec_sandbox.tools.errors import ToolDenied, ToolError, ToolProtocolError, ToolTimeout
from mcp_exec_sandbox.tools.libraries import load_lazily
from mcp_exec_sandbox.tools.progress import progress
from mcp_exec_sandbox.tools.results import Blob, Link, ToolResult

__all__ = [
    "Blob",
    "Link",
    "ToolDenied",
    "ToolError",
    "ToolProtocolError",
    "ToolResult",
    "ToolTimeout",
    "bind_arguments",
    "call_mcp_tool",
    "call_wrapped",
    "load_lazily",
    "progress",
    "show",
]
