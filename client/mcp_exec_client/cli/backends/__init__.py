"""Where commands get and send executions: a gateway or an API server."""
