"""Access to models: one module for each API."""
