"""The `continue` of a page: the place in the order after which the next page begins. It is valid at every replica."""

import base64
import binascii
import json

from mcp_exec_gateway.listing.entry import EntryPosition


def encode_position(position: EntryPosition) -> str:
    """Return the token of a place in the order."""
    return base64.urlsafe_b64encode(json.dumps(position).encode()).decode().rstrip("=")


def decode_position(token: str) -> EntryPosition:
    """Return the place in the order. Raises ValueError for a token that no gateway made."""
    try:
        position = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        position = None
    match position:
        case [int(created), str(name)]:
            return created, name
    raise ValueError("this is not the `continue` of a page; list again without it")
