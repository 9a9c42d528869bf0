"""The broker's two ports: calls from sandboxes, control from operator and gateway."""
