"""Removal of what a run left in the sandbox's writable places."""
