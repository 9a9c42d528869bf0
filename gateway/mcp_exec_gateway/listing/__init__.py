"""Lists of executions from a cache, newest first: entries, order, filters, page tokens."""
