"""Small building blocks that know nothing of the product."""
