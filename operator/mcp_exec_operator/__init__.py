"""The operator: it binds each CodeExecution to a sandbox pod, collects its output and keeps the pools warm."""
