"""`mcp-exec skills`: list, show, save, review, export and run skills."""
