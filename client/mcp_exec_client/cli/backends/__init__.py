"""What commands use while they run, with its libraries: a gateway, an API server, sources of catalogs, checks."""
