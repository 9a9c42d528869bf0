"""Proof that the peer of a connection holds a key, given before anything secret is sent to it.

The client sends a nonce. The peer returns an HMAC of the nonce and of the client's address as the peer sees it. A
stranger that passes the nonce on to the real peer gets a proof for its own address, which the client refuses.
"""

import asyncio
import hashlib
import hmac
import ipaddress
import json
import re
import secrets
import socket
from dataclasses import dataclass
from typing import Final

import aiohttp

PROOF_PATH: Final = "/v1/proof"
MAX_ANSWER_BYTES: Final = 4096
"""Longest accepted answer to the request for a proof, its head included."""
_PURPOSE: Final = "mcp-exec proof 1"
_PROOF: Final = re.compile(r"[0-9a-f]{64}")
_HEAD: Final = re.compile(rb"HTTP/1\.1 ([0-9]{3})[ \r]")
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *([0-9]{1,4})(?:\r\n|\Z)", re.IGNORECASE)


class PeerNotProven(aiohttp.ClientConnectionError):
    """The peer of a connection is not the one that should be there. Nothing secret was sent to it.

    A peer that is silent, or closes the connection, may be the right one: that is an OSError.
    """


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What a peer answers."""

    proof: str
    """The HMAC in hexadecimal digits."""
    address: str
    """Address of the client as the peer sees it."""


def normalize_address(address: str) -> str:
    """Return an IP address in its shortest form, an IPv4-mapped one as IPv4, and without a zone. Raises ValueError."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)


def compute_proof(*, key: str, nonce: str, address: str) -> str:
    """Return the proof for a nonce, to a client at this address. A supervisor's key is the digest of its token."""
    return hmac.new(key.encode(), f"{_PURPOSE}\n{nonce}\n{address}".encode(), hashlib.sha256).hexdigest()


def broker_key(key: bytes) -> str:
    """Return the key of the broker's proofs, which is derived from the release's key."""
    return hmac.new(key, b"mcp-exec broker proof", hashlib.sha256).hexdigest()


def is_nonce(text: str) -> bool:
    """Return whether a text is a nonce: 32 bytes in hexadecimal digits."""
    return _PROOF.fullmatch(text) is not None


async def demand_proof(connection: socket.socket, *, key: str) -> None:
    """Demand a proof from the peer of a connected, non-blocking socket.

    The connection can be used for other requests afterwards. Raises PeerNotProven, and OSError if there is no complete
    answer. The caller sets the time limit.
    """
    loop = asyncio.get_running_loop()
    nonce = secrets.token_hex(32)
    own, peer = normalize_address(connection.getsockname()[0]), connection.getpeername()[0]
    request = f"GET {PROOF_PATH}?nonce={nonce} HTTP/1.1\r\nHost: peer\r\nAccept-Encoding: identity\r\n\r\n"
    await loop.sock_sendall(connection, request.encode())
    answer = bytearray()
    while (body := _find_body(answer, peer)) is None:
        data = await loop.sock_recv(connection, MAX_ANSWER_BYTES + 1 - len(answer))
        if not data:
            raise ConnectionResetError(f"{peer} closed the connection before its proof was complete")
        answer += data
        if len(answer) > MAX_ANSWER_BYTES:
            raise PeerNotProven(f"{peer} answered the request for a proof with more than {MAX_ANSWER_BYTES} bytes")
    _check(_parse(body, peer), key=key, nonce=nonce, own=own, peer=peer)


def _find_body(answer: bytearray, peer: str) -> bytes | None:
    """Return the body of a complete answer, or None if more has to be read."""
    head, separator, body = bytes(answer).partition(b"\r\n\r\n")
    if not separator:
        return None
    status, length = _HEAD.match(head), _LENGTH.search(head)
    if status is None or status[1] != b"200" or length is None:
        raise PeerNotProven(
            f"{peer} gives no proof: it did not answer with 200 and a length; its image may be of another version"
        )
    if len(body) > int(length[1]):
        raise PeerNotProven(f"{peer} sent more than its proof")
    return body if len(body) == int(length[1]) else None


def _parse(body: bytes, peer: str) -> Proof:
    try:
        content = json.loads(body)
        proof = Proof(proof=content["proof"], address=normalize_address(content["address"]))
        if _PROOF.fullmatch(proof.proof):
            return proof
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass
    raise PeerNotProven(f"{peer} answered the request for a proof with something else")


def _check(proof: Proof, *, key: str, nonce: str, own: str, peer: str) -> None:
    expected = compute_proof(key=key, nonce=nonce, address=proof.address)
    if not hmac.compare_digest(proof.proof, expected):
        raise PeerNotProven(f"{peer} sent a wrong proof: it does not hold the key of the pod that should be there")
    if proof.address != own:
        raise PeerNotProven(f"{peer} passed on a proof for {proof.address}, and this client is {own}: it is a relay")
