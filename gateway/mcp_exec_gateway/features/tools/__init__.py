"""Tools of MCP servers: catalogs, search, approvals, and calls without an execution. The broker makes all calls."""
