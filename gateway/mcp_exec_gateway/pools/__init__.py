"""Pools of executions: a cache of their specs, and what their pods offer."""
