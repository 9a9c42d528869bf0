"""Executions that wait for a pod."""
