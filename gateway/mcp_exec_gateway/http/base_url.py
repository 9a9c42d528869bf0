"""The gateway's address as its clients see it, for links in responses."""

import re
from typing import Final

from starlette.requests import Request

_HOST: Final = re.compile(r"[A-Za-z0-9.:_\[\]-]{1,255}")
_SCHEMES: Final = ("http", "https")


def find_base_url(request: Request, *, public_url: str) -> str:
    """Return the address by which the client reached the gateway, unless a setting names one.

    A client that sends another Host or scheme gets links that work nowhere; nobody else gets them.
    """
    if public_url:
        return public_url.rstrip("/")
    forwarded = request.headers.get("x-forwarded-proto", "").strip().lower()
    scheme = forwarded if forwarded in _SCHEMES else request.url.scheme
    host = request.headers.get("host", "")
    return f"{scheme}://{host}" if _HOST.fullmatch(host) else ""
