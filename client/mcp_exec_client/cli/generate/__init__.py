"""`mcp-exec servers generate`: typed wrappers of MCP servers, from catalogs of several sources."""
