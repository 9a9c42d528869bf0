"""What runs inside a sandbox pod: the supervisor (PID 1) and the runner that holds the agent's code."""
