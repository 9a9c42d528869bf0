"""The release's keys: their Secrets, and the rotation of the sandbox key."""
