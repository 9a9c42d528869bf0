"""The command `records`."""
