"""Connections to peers that code may stand in for: they prove themselves first, and their answers are bounded."""

import asyncio
import hashlib
import hmac
import ipaddress
import json
import re
import secrets
import socket
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import aiohttp

if TYPE_CHECKING:
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.tracing import Trace


_BUFFER_BYTES: Final = 2**16
"""Bytes that are read at once at most, doubled by aiohttp: so many are handled without a pause for other tasks."""
_MAX_HEADERS: Final = 64
_MAX_HEADER_BYTES: Final = 8192
"""Longest status line, and longest header. Together with their number this bounds a head to half a MiB."""


class InvalidAnswer(Exception):
    """An answer that is too long, compressed or no JSON object."""


def open_session(connector: aiohttp.BaseConnector) -> AbstractAsyncContextManager[aiohttp.ClientSession]:
    """Open a session for requests to peers. It keeps no cookies, decompresses nothing and uses no proxies.

    A request needs `allow_redirects=False`, a time limit, and `check_head` or `read_answer`.
    """
    return aiohttp.ClientSession(
        connector=connector,
        headers={"Accept-Encoding": "identity"},
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
        read_bufsize=_BUFFER_BYTES,
        max_headers=_MAX_HEADERS,
        max_line_size=_MAX_HEADER_BYTES,
        max_field_size=_MAX_HEADER_BYTES,
    )


def check_head(response: aiohttp.ClientResponse) -> None:
    """Raise InvalidAnswer if the body is compressed, which no peer was asked for."""
    encoding = response.headers.get("Content-Encoding", "identity")
    if encoding.lower() != "identity":
        raise InvalidAnswer("the answer is compressed, which was not asked for")


async def read_answer(response: aiohttp.ClientResponse, *, limit: int) -> bytes:
    """Return the body of an answer, which may have at most `limit` bytes. Raises InvalidAnswer and ClientError."""
    check_head(response)
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > limit:
            raise InvalidAnswer(f"the answer has more than {limit} bytes")
    return bytes(body)


def parse_answer(body: bytes) -> dict[str, Any]:
    """Return the JSON object of an answer. Raises InvalidAnswer."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidAnswer(f"the answer is no JSON that can be read ({type(error).__name__})") from None
    if not isinstance(content, dict):
        raise InvalidAnswer("the answer is no JSON object")
    return content


PROOF_PATH: Final = "/v1/proof"
MAX_ANSWER_BYTES: Final = 4096
"""Longest accepted answer to the request for a proof, its head included."""
_PURPOSE: Final = "mcp-exec proof 1"
_RETURN_PURPOSE: Final = "mcp-exec token 1"
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
    nonce: str = ""
    """A nonce of the peer, if it demands a proof in turn."""


@dataclass(frozen=True, kw_only=True)
class ProvenPeer:
    """A peer that has proved itself on a connection."""

    key: str
    """The key that it holds. A bridge's is the digest of its token."""
    nonce: str
    """What it was asked with."""
    own_nonce: str
    """What it asks with; empty if it does not."""
    address: str
    """Address of this client."""

    def cover_token(self, token: str) -> str:
        """Return this client's proof: the token under a mask, which only a peer with its digest can remove, and once.

        The peer has only the digest before, as in SCRAM (RFC 5802), so that who reads it there can't be a client.
        """
        text = f"{_RETURN_PURPOSE}\n{self.nonce}\n{self.own_nonce}\n{self.address}"
        mask = hmac.new(self.key.encode(), text.encode(), hashlib.sha256).hexdigest()
        return f"{int(token, 16) ^ int(mask, 16):064x}"


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


async def demand_proof(connection: socket.socket, *, keys: Collection[str]) -> ProvenPeer:
    """Demand a proof from the peer of a connected, non-blocking socket. It may be made with any of the keys.

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
    proof = _parse(body, peer)
    key = _check(proof, keys=keys, nonce=nonce, own=own, peer=peer)
    return ProvenPeer(key=key, nonce=nonce, own_nonce=proof.nonce, address=own)


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
        proof = Proof(
            proof=content["proof"], address=normalize_address(content["address"]), nonce=content.get("nonce", "")
        )
        if _PROOF.fullmatch(proof.proof) and (proof.nonce == "" or _PROOF.fullmatch(proof.nonce)):
            return proof
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass
    raise PeerNotProven(f"{peer} answered the request for a proof with something else")


def _check(proof: Proof, *, keys: Collection[str], nonce: str, own: str, peer: str) -> str:
    """Return the key that the proof was made with."""
    expected = {key: compute_proof(key=key, nonce=nonce, address=proof.address) for key in keys}
    made_with = next((key for key, each in expected.items() if hmac.compare_digest(proof.proof, each)), None)
    if made_with is None:
        raise PeerNotProven(f"{peer} sent a wrong proof: it does not hold the key of the pod that should be there")
    if proof.address != own:
        raise PeerNotProven(f"{peer} passed on a proof for {proof.address}, and this client is {own}: it is a relay")
    return made_with


PROOF_SECONDS: Final = 3.0
"""Time for a connection and its proof, unless the request has less."""


class ProvenConnector(aiohttp.BaseConnector):
    """Opens connections to IP addresses over TCP, and returns them once their peer has proved that it holds a key.

    A connection is proved once and then kept for later requests. No request is sent before, so that no stranger gets a
    token. `find_keys` returns the keys that may prove it, from the headers of the request.
    """

    def __init__(self, *, find_keys: Callable[[Mapping[str, str]], Collection[str]], keepalive_timeout: float) -> None:
        super().__init__(limit=0, keepalive_timeout=keepalive_timeout)
        self._find_keys = find_keys

    async def _create_connection(
        self,
        req: aiohttp.ClientRequest,
        traces: list["Trace"],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - the signature is aiohttp's
    ) -> "ResponseHandler":
        seconds = min(PROOF_SECONDS, timeout.sock_connect or PROOF_SECONDS)
        try:
            async with asyncio.timeout(seconds):
                connection = await connect(req.url.raw_host or "", req.url.port or 0)
                try:
                    await demand_proof(connection, keys=self._find_keys(req.headers))
                    _, protocol = await self._loop.create_connection(self._factory, sock=connection)
                except BaseException:
                    connection.close()
                    raise
                return protocol
        except TimeoutError as error:
            raise TimeoutError(f"no connection and proof within {seconds:g} s") from error
        except OSError as error:
            raise aiohttp.ClientConnectorError(req.connection_key, error) from error


async def connect(host: str, port: int) -> socket.socket:
    """Return a connection to an IP address. Its peer has proved nothing. Raises OSError, and PeerNotProven for a name.

    The caller sets the time limit.
    """
    try:
        address = normalize_address(host)
    except ValueError as error:
        raise PeerNotProven(f"{host[:100]!r} is no IP address") from error
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # with the protocol's number: asyncio sets TCP_NODELAY only with it
    connection = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, (address, port))
    except BaseException:
        connection.close()
        raise
    return connection
