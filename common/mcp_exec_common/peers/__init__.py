"""Connections to peers that code may stand in for, and answers that may be hostile."""
