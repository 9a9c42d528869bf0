"""`mcp-exec servers import`: an application's own tools as a ToolServer."""
