"""Limits that the runner sets on itself, for the code and all its processes."""
