"""Authentication and authorization of callers, and their rate limits."""
