"""Arguments and results against JSON Schemas that nobody here wrote."""
