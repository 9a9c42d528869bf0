"""Sandbox pods: their manifests, their states, the cache of them."""
