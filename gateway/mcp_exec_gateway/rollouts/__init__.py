"""Rollouts: which arm a unit gets, and how far a rollout is."""
