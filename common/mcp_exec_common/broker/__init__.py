"""Client of the broker, and the grants that it accepts."""
