"""Skills: versions of reusable code."""
