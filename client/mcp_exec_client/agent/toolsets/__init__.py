"""Tools of a model: code in sandboxes, and direct calls."""
