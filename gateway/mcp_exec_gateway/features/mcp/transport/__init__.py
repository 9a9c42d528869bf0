"""Streamable HTTP of both revisions, without state in the gateway."""
