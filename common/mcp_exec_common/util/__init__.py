"""Small parts without any knowledge of the product."""
