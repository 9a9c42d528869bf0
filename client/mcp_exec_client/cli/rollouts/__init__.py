"""`mcp-exec rollout`: list, show, promote, pause, resume and abort rollouts."""
