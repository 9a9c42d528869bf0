"""Skills: list, save, review, delete and export."""
