"""What the broker does besides calling tools: each folder can be deleted."""
