"""What a model can use: code in sandboxes, and tools directly."""
