"""`mcp-exec doctor`: checks of an installation, with hints."""
