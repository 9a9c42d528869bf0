"""Ports for processes that a test or a benchmark starts."""

import itertools
import os
import random
import re
import socket

FIRST = 10_000
"""Below those that the kernel gives to connections (`net.ipv4.ip_local_port_range`), so that it takes none of these
before the process listens."""
WORKERS = 16
EACH = 1_000
"""Ports of each worker of pytest-xdist: workers choose at the same time."""

_offsets = itertools.count(random.randrange(EACH))


def free_port() -> int:
    """Return a port that nobody uses, and that this process has not returned lately."""
    worker = int(re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or WORKERS - 1) % WORKERS
    for offset in itertools.islice(_offsets, EACH):
        port = FIRST + worker * EACH + offset % EACH
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            pass
    raise OSError(f"no port is free from {FIRST + worker * EACH} to {FIRST + worker * EACH + EACH - 1}")
