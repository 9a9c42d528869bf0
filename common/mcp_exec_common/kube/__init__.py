"""Client of the Kubernetes API server."""
