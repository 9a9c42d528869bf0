"""MCP servers: sessions, transports and credentials."""
