"""Folder of the modules that the agent's code imports: `client` and `tool_discovery`."""
