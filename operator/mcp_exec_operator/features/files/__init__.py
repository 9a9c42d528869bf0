"""Workspaces and artifacts of executions."""
