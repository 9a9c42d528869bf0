"""Validates arguments and results against untrusted JSON Schemas."""
