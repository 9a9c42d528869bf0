"""The gateway: the HTTP API through which services run code."""
