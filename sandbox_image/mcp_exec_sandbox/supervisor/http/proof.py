"""Proof that a peer talks to this pod's supervisor. It must equal `mcp_exec_common.peers.proof`.

The key is the digest of the pod's token, which the code can't read. The proof names the peer's address as the
supervisor sees it: code that passes a proof on to its own client has another address than that client.
"""

import hashlib
import hmac
import re

_PURPOSE = "mcp-exec proof 1"


def is_nonce(text: str) -> bool:
    """Return whether a text is a nonce: 32 bytes in hexadecimal digits."""
    return re.fullmatch(r"[0-9a-f]{64}", text) is not None


def compute_proof(*, key: str, nonce: str, address: str) -> str:
    """Return the proof for a nonce, to a peer at this address."""
    return hmac.new(key.encode(), f"{_PURPOSE}\n{nonce}\n{address}".encode(), hashlib.sha256).hexdigest()
