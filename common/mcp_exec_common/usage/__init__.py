"""What models, sandboxes and tools used, and what it cost."""
