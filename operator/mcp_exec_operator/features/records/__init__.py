"""Records: what ended is sent to the broker, which stores it."""
