"""What every process needs: settings, logging, an HTTP server, file limits."""
