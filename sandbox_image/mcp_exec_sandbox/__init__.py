"""Processes of a sandbox pod: the supervisor (PID 1), and the runner, which executes the agent's code."""
