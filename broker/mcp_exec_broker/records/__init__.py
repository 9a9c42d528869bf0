"""Records: one durable row for each execution, tool call, report of model usage, rating and outcome."""
