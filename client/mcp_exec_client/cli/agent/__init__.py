"""Commands that give tasks to a model."""
