"""Sessions of callers: their quota, and the operations on them."""
