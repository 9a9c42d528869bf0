"""Records of the broker, for callers."""
