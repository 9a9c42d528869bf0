"""The tools of each MCP server."""
