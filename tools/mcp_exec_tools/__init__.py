"""MCP tools for code: names, catalogs, search, wrappers. Imports the standard library only: sandboxes contain it."""
