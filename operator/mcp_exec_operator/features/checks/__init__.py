"""Checks of code and limits by the rules of a pool, before the code takes a pod."""
