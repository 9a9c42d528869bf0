"""What runs inside a sandbox pod: the supervisor and the runner."""
