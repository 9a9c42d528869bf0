"""What every gateway is: callers, HTTP, executions and their events. It imports no feature."""
