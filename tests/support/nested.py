"""Objects that are nested more deeply than Python reads, which a server that holds them as values cannot have."""

from tests.support.api_server import FakeApiServer, Object

NESTED = "a value that is nested deeply"
LEVELS = 5_000
"""The API server takes 10,000."""


def nest_deeply(server: FakeApiServer, *, levels: int = LEVELS) -> None:
    """Send a value of so many levels in the place of each `NESTED`."""
    encode, value = server.encode, b'{"a":' * levels + b"1" + b"}" * levels

    def encode_nested(item: Object) -> bytes:
        return encode(item).replace(f'"{NESTED}"'.encode(), value)

    server.encode = encode_nested  # type: ignore[method-assign]
