"""Languages of executions: each runs only in a pool of its language."""
