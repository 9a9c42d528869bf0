"""The steps of a shutdown, as requests in flight see them."""

import asyncio
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class ShutdownSignals:
    """Two events, set one after the other once the process receives SIGTERM."""

    draining: asyncio.Event = field(default_factory=asyncio.Event)
    """Set at once: the process is not ready any more, but still serves."""
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set after the drain: event streams end, and clients resume them at another replica."""
