"""The command without the developer's settings."""

from tests.support.environment import no_profile

__all__ = ["no_profile"]
