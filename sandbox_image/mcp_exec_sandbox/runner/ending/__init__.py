"""End of the interpreter as Python ends."""
