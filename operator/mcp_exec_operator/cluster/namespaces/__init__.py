"""Which namespaces a release serves, and who else does."""
