"""What a plain tool call needs. Nothing here imports a feature."""
