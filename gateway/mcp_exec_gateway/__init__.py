"""The gateway of mcp-exec."""
