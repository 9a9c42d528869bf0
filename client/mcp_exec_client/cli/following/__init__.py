"""Following executions: events, interrupts, approvals, and waits for an operator."""
