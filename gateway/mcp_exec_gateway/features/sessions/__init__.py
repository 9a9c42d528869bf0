"""Sessions of callers."""
