"""Static checks of code before it runs."""
