"""Wrappers in Python: a package for each server, with a module for each tool."""
