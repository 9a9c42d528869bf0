"""How bytes that code produced are served: hostile content must not act in the gateway's origin.

Media type and name are the code's choice. A browser shows only types that cannot run anything, and HTML and SVG in a
sandbox without scripts and requests; all else is a download of octets. The policy does not cover `preconnect` and
`dns-prefetch`, by which a page sends data in host names: Connection-Allowlist does, in browsers that have it.
"""

import re
from typing import Final
from urllib.parse import quote

OCTETS: Final = "application/octet-stream"
_SHOWN: Final = {
    "image/png": "image/png",
    "image/jpeg": "image/jpeg",
    "image/gif": "image/gif",
    "image/webp": "image/webp",
    "image/svg+xml": "image/svg+xml",
    "text/html": "text/html; charset=utf-8",
    "text/plain": "text/plain; charset=utf-8",
    "text/csv": "text/plain; charset=utf-8",
    "text/markdown": "text/plain; charset=utf-8",
    "application/json": "application/json",
}
"""Content-Type of what a browser shows, by media type. With the policy below, none of them runs a script."""
_POLICY: Final = (
    "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'; font-src data:; media-src data:; "
    "base-uri 'none'; form-action 'none'"
)
_PLAIN: Final = re.compile(r"[^A-Za-z0-9_.@+= -]")
_MAX_NAME: Final = 150


def build_content_headers(*, name: str, media_type: str, shows: bool) -> dict[str, str]:
    """Return the headers of content. With `shows`, a browser shows it if that is safe, and does not store it."""
    shown = _SHOWN.get(media_type.partition(";")[0].strip().lower()) if shows else None
    return {
        "Content-Type": shown or OCTETS,
        "Content-Disposition": format_disposition(name, shows=shown is not None),
        "Content-Security-Policy": _POLICY,
        "Connection-Allowlist": "()",
        "X-DNS-Prefetch-Control": "off",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "private, no-cache",
    }


def format_disposition(name: str, *, shows: bool) -> str:
    """Return a Content-Disposition with the last part of a name, in ASCII and in full (RFC 6266)."""
    last = re.split(r"[/\\]", name)[-1][-_MAX_NAME:] or "file"
    plain = _PLAIN.sub("_", last).strip(" .") or "file"
    full = "" if plain == last else f"; filename*=UTF-8''{quote(last.encode(errors='replace'), safe='')}"
    return f'{"inline" if shows else "attachment"}; filename="{plain}"{full}'
