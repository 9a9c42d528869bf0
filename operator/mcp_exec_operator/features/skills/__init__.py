"""Skills: their states and interfaces, their code for executions, their use, and drafts that code saves."""
