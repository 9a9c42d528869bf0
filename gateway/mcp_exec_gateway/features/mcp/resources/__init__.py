"""Resources of the endpoint: skills, files of workspaces, artifacts and tools, their completion, and `skills/list`."""
