"""The gateway: services run code through its HTTP API."""
