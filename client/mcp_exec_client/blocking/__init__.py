"""Blocking client of a gateway."""
