"""The audit log of tool calls."""
