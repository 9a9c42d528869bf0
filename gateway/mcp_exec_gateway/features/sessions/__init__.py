"""Sessions of callers: sandboxes that keep variables and files between executions."""
