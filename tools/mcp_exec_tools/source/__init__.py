"""Python as models and people write it: notebook idioms are accepted, and errors say what to write instead."""
