"""The gateway's routes, a module for each noun."""
