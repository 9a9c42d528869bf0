"""Validation of arguments and results against untrusted JSON Schemas."""
