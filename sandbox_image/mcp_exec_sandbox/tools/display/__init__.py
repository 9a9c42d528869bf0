"""Artifacts that code shows: `show(value)` writes a file that people see with the result.

No library is imported here. Figures, images and tables are recognized by their classes' modules and methods.
"""
