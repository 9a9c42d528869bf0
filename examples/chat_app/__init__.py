"""A chat service with its own tool loop: ten tools called directly, or used by code in a sandbox."""
