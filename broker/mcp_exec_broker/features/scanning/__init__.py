"""Detectors of secrets and personal data in texts, and the tokens that replace personal data."""
