"""The event stream of an execution."""
