"""CodeExecutions: creation, cache, waiting and views."""
