"""Skills for the code: modules below `skills`, their search, and `save_skill`."""
