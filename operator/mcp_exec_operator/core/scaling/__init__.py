"""How many pods a pool needs, which to create and which to delete."""
