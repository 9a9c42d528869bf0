"""HTTP routes, one module per resource. No module imports another."""
