"""Answers of peers, which may be hostile: bounded before they are read, never decompressed, never redirected."""

import json
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import aiohttp

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
