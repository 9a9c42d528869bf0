"""Repeated calls of MCP clients that gave up: the run whose answer they never received."""
