"""Connections to hosts outside of the release: the authorities of certificates that they trust."""

import re
import ssl
from pathlib import Path
from typing import Final

MAX_BUNDLE_BYTES: Final = 512 * 1024
"""Twice the size of a bundle with all public authorities."""
_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")


def read_bundle(path: Path) -> str:
    """Return the text of a bundle, with one byte more than allowed if it is too large. Raises OSError."""
    with path.open("rb") as file:
        return file.read(MAX_BUNDLE_BYTES + 1).decode("utf-8", "replace")


def find_certificates(bundle: str) -> list[str]:
    """Return the certificates of a bundle without the text around them. Raises ValueError as `build_client_tls`."""
    if len(bundle.encode()) > MAX_BUNDLE_BYTES:
        raise ValueError(f"has more than {MAX_BUNDLE_BYTES} bytes")
    if not (found := _CERTIFICATE.findall(bundle)):
        raise ValueError("has no certificate in PEM: -----BEGIN CERTIFICATE-----")
    return found


def build_client_tls(*bundles: str) -> ssl.SSLContext:
    """Return the TLS context of outgoing connections: it trusts the system's authorities and those of bundles in PEM.

    Text around certificates is ignored. Raises ValueError, whose text completes "the bundle ...", if one is unusable.
    """
    context = ssl.create_default_context()
    for bundle in bundles:
        for number, certificate in enumerate(find_certificates(bundle), start=1):
            try:
                context.load_verify_locations(cadata=certificate)
            except ssl.SSLError:
                raise ValueError(f"has a certificate that can't be read, number {number}") from None
    return context
