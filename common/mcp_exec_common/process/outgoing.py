"""Connections to hosts outside of the release: the authorities of certificates that they trust, and their proxies."""

import re
import ssl
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

MAX_BUNDLE_BYTES: Final = 512 * 1024
"""Twice the size of a bundle with all public authorities."""
_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")


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


PROXY_URL: Final = r"^(https?://[^\s/@]+/?)?$"
"""URL of a proxy without credentials."""
_SECRET_URL: Final = re.compile(r"https?://([^\s/@]+@)?[^\s/@]+/?")
_SCHEMES: Final = ("http", "https")


@dataclass(frozen=True, kw_only=True)
class Proxies:
    """Proxies of HTTP requests, and what is reached without them."""

    urls: Mapping[str, str] = field(default_factory=dict, repr=False)
    """URL of the proxy by the scheme of a request's URL, with credentials if the proxy requires some."""
    names: tuple[str, ...] = ()
    """Hosts and domains that are reached directly."""
    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    """Networks that are reached directly."""

    @classmethod
    def build(cls, urls: Mapping[str, str], direct: Iterable[str]) -> "Proxies":
        """Build them with what is reached directly: networks, addresses, hosts, and domains with or without a dot."""
        names, networks = [], []
        for entry in direct:
            try:
                networks.append(ip_network(entry, strict=False))
            except ValueError:
                names.append(entry.removeprefix("*").strip(".").lower())
        found = {scheme: url for scheme, url in urls.items() if url}
        return cls(urls=found, names=tuple(names), networks=tuple(networks))

    def find(self, scheme: str, host: str) -> str | None:
        """Return the proxy of requests to a host, unless its addresses are reached directly; None if there is none.

        A name without a dot is of the cluster, whose search domains complete it.
        """
        host = host.rstrip(".").lower()
        try:
            return None if self.is_direct([ip_address(host)]) else self.urls.get(scheme)
        except ValueError:
            is_direct = "." not in host or any(host == name or host.endswith("." + name) for name in self.names)
        return None if is_direct else self.urls.get(scheme)

    def is_direct(self, addresses: Collection[IPv4Address | IPv6Address]) -> bool:
        """Return whether all addresses of a host are in networks that are reached directly."""
        return bool(addresses) and all(any(each in network for network in self.networks) for each in addresses)


def read_proxy_folder(entries: Mapping[str, bytes]) -> dict[str, str]:
    """Return the URLs of proxies in the entries of a Secret. Raises ValueError, whose text has none of them."""
    urls = {}
    for scheme in _SCHEMES:
        urls[scheme] = entries.get(scheme, b"").decode("ascii", "replace").strip()
        if not _SECRET_URL.fullmatch(urls[scheme]):
            raise ValueError(
                f"the entry {scheme} must be a URL, for example http://USER:PASSWORD@proxy.example.com:3128"
            )
    return urls
