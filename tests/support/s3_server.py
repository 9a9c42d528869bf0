"""A server with the interface of S3, which supports conditional writes. It keeps objects in memory."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any
from urllib.request import Request, urlopen

from moto.server import ThreadedMotoServer


@dataclass(frozen=True)
class S3Server:
    """A running server with one bucket."""

    url: str
    bucket: str = "files"

    def settings(self, folder: Path) -> dict[str, Any]:
        """Return the broker's settings for a prefix of its own."""
        credentials = folder / "s3"
        credentials.mkdir(exist_ok=True)
        for name in ("accessKeyId", "secretAccessKey"):
            (credentials / name).write_text("test\n")
        return {
            "files_bucket": self.bucket,
            "files_prefix": token_hex(4),
            "files_endpoint": self.url,
            "files_region": "us-east-1",
            "files_credentials": credentials,
        }


@contextmanager
def running_s3() -> Iterator[S3Server]:
    """Run a server while the context is open."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        made = S3Server(f"http://{host}:{port}")
        urlopen(Request(f"{made.url}/{made.bucket}", method="PUT")).close()
        yield made
    finally:
        server.stop()
