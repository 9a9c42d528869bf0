"""The folder that the agent's code finds its modules in: `client` and `tool_discovery`."""
