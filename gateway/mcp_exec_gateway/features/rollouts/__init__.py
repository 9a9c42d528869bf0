"""Rollouts: arms of units, their steering and their outcomes."""
