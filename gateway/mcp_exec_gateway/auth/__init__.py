"""Callers: API keys, service account tokens and rate limits."""
