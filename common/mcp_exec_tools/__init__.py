"""MCP tools as code sees them: names, catalogs, search, wrappers. The standard library alone: sandboxes have it."""
