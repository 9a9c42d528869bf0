"""Types, names and clients that every part of mcp-exec shares."""
