"""The audit log: one record of each tool call, durable before the call travels."""
