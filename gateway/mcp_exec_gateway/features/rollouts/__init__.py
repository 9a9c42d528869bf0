"""Rollouts: arms of units, their steering, their exposures and their outcomes."""
