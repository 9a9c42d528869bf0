"""What each demo server does when it is run: it speaks over standard input and output, or over HTTP."""

import argparse
import random
from collections.abc import Sequence
from typing import Any, Final

from mcp.server import MCPServer
from mcp_types import ToolAnnotations

READS: Final = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
"""A tool that changes nothing."""
ADDS: Final = ToolAnnotations(
    read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False
)
"""A tool that adds something, and takes nothing away."""
DESTROYS: Final = ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
)
"""A tool that takes away what was there."""


def run(server: MCPServer[Any], arguments: Sequence[str] | None = None) -> None:
    """Serves until standard input ends, or with `--http PORT` until the process is asked to end."""
    parser = argparse.ArgumentParser(description=server.instructions)
    parser.add_argument("--http", type=int, metavar="PORT", help="serve streamable HTTP on this port, at /mcp")
    port = parser.parse_args(arguments).http
    if port is None:
        server.run()
    else:
        # every address: in a pod, a NetworkPolicy says who may come
        server.run("streamable-http", host="0.0.0.0", port=port)  # noqa: S104


def dice(*seed: object) -> random.Random:
    """Random numbers that are the same for the same seed, on every machine: these servers' data."""
    return random.Random("/".join(str(part) for part in seed))  # data of a demo
