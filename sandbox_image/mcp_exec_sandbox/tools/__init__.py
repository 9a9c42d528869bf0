"""Tool calls from the agent's code: arguments, the way to the broker, results and errors."""
