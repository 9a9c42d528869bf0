"""Untrusted JSON Schemas of tools: reading, parameters, and the form that models accept."""
