"""Records of executions, tool calls and conversations, usage, and audit records, which the broker stores."""
