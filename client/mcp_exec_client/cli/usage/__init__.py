"""The command `usage`."""
