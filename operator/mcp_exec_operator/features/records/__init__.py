"""Records: what ended is told to the broker, which keeps it."""
