"""The operator of mcp-exec."""
