"""Libraries that code expects and this sandbox lacks."""
