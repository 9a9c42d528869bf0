"""The default model, and what can be set for a model."""

from typing import Final, Literal

DEFAULT_MODEL: Final = "claude-sonnet-5-5"
"""Model of the agent, the command line and the examples. The API answers 404 after its retirement: name another."""
Effort = Literal["low", "medium", "high", "xhigh", "max"]
"""How much a model thinks and writes; not every model knows all of them."""
Thinking = Literal["adaptive", "disabled"]
"""Whether a model thinks before it answers: as it sees fit, or never."""
