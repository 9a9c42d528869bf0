"""Tool calls of executions: grants, counts, and waits for approvals."""
