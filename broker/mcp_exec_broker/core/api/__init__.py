"""The two ports of the broker: calls from sandboxes, and control by operator and gateway."""
