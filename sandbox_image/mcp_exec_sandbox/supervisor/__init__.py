"""The supervisor: HTTP server, event log, limits and lifecycle of a sandbox's one execution."""
