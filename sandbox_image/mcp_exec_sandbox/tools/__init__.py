"""Tool calls from the agent's code: arguments, connections to the broker, results and errors."""
