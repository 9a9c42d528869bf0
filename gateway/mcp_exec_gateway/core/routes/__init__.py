"""Routes of the core: executions, statistics, and the gateway itself."""
