"""Decisions about rollouts: who gets which arm, how certain a measure is, and what guards conclude. Pure."""
