"""The ToolServer controller, and the tool wrappers that sandboxes receive."""
