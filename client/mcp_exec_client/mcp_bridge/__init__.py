"""Bridge from stdio to the gateway's MCP endpoint, for clients that start their servers as programs."""
