"""Event streams of executions."""
