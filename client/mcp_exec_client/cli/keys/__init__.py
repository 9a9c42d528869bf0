"""API keys of a gateway, which a user with rights in the release's namespace manages."""
