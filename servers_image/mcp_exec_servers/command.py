"""Command line of the demo servers, which serve stdio or HTTP, and parts that they share."""

import argparse
import random
from collections.abc import Sequence
from typing import Any, Final

from mcp.server import MCPServer
from mcp_types import ToolAnnotations

READS: Final = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
"""Annotations of a tool that changes nothing."""
ADDS: Final = ToolAnnotations(
    read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False
)
"""Annotations of a tool that adds something and removes nothing."""
DESTROYS: Final = ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
)
"""Annotations of a tool that changes or removes something."""


def run(server: MCPServer[Any], arguments: Sequence[str] | None = None) -> None:
    """Serve until standard input ends, or with `--http PORT` until a signal ends the process."""
    parser = argparse.ArgumentParser(description=server.instructions)
    parser.add_argument("--http", type=int, metavar="PORT", help="serve streamable HTTP on this port, at /mcp")
    port = parser.parse_args(arguments).http
    if port is None:
        server.run()
    else:
        # all addresses: in a pod, a NetworkPolicy restricts the clients
        server.run("streamable-http", host="0.0.0.0", port=port)  # noqa: S104


def seeded_random(*seed: object) -> random.Random:
    """Return a generator whose numbers depend on the seed only, so that the data is the same on every machine."""
    return random.Random("/".join(str(part) for part in seed))  # demo data
