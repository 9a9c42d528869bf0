"""Parts of commands that need libraries: a gateway, an API server, sources of catalogs, checks."""
