"""The routes on files, for sandboxes and for gateway and operator."""
