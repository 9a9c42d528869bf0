"""HTTP bodies, queries, problems and access log."""
