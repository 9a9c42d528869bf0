"""Versions of workspaces: what they contain, how they are committed and read."""
