"""What callers may create, keep and read: limits of API keys and of namespaces."""
