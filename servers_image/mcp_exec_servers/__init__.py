"""MCP servers that ship with mcp-exec, and the bridge to those that speak over standard input and output."""
