"""The audit log of tool calls, and records: one durable row for each execution, tool call, report and outcome."""
