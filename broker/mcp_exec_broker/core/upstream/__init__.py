"""MCP servers: ToolServers, sessions, transports and credentials."""
