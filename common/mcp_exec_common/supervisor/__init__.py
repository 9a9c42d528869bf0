"""Client of a sandbox's supervisor, and its protocol."""
