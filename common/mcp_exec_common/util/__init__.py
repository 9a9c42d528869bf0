"""Small building blocks that are independent of the product."""
