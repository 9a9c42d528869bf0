"""How far the process is on its way out."""

import asyncio
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Lifecycle:
    """Two events in the life of a gateway that is told to stop."""

    draining: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the process is told to stop: no longer ready, still serving."""
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the time for whole answers is over: who waits gets the state so far, streams end to be resumed."""
