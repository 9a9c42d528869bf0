"""CodeExecutions: creation, index, waits, approvals and views."""
