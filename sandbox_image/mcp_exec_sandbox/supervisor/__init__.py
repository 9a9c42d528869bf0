"""The supervisor: HTTP server, event log, limits and the life of the one run of a sandbox."""
