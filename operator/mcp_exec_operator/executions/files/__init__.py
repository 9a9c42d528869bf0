"""Files of executions: their grants, one writer for each workspace, and what the sandbox reports of them."""
