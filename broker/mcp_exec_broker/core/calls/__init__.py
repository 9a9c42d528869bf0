"""One tool call, step by step."""
