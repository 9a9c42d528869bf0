"""The Python client and the `mcp-exec` command."""
