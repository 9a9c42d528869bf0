"""Rollouts: staged A/B changes of how executions run."""
