"""What lies between this machine and an address: proxies, who can read plain HTTP, and failures in words."""

import ipaddress
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TextIO, TypeVar
from urllib.parse import urlsplit

_Transport = TypeVar("_Transport")
PLAIN_HTTP_VARIABLE: Final = "MCP_EXEC_PLAIN_HTTP"
"""Environment variable that states, by one of `_YES`, that plain HTTP is intended."""
_YES: Final = frozenset({"yes", "true", "1"})

A_VALID_ADDRESS: Final = "it must be an address such as https://HOST:PORT/PATH"
_MAX_CAUSES: Final = 20
_ASYNCIO: Final = "Connect call failed"
"""Begin of asyncio's text, which has an address in place of the reason."""
_WITHOUT_TEXT: Final = {
    "ConnectTimeout": "no connection within the time limit",
    "ReadTimeout": "no data within the time limit",
    "WriteTimeout": "the data were not accepted within the time limit",
    "PoolTimeout": "no connection of this client became free within the time limit",
    "ReadError": "the connection was lost",
    "WriteError": "the connection was lost",
    "CloseError": "the connection was lost",
}
"""Failures of httpx that have no text."""


def is_loopback(url: str) -> bool:
    """Return whether an address is of this machine itself."""
    host = (urlsplit(url).hostname or "").rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    return address.is_loopback or address.is_unspecified  # connections to 0.0.0.0 and [::] go to this machine


def direct_transport(url: str, create: Callable[[], _Transport]) -> _Transport | None:
    """Return a transport of httpx that uses no proxy if the address is to be reached without one, else None.

    Without a transport, httpx reads $HTTP_PROXY and its siblings, and would send requests to a proxy that has another
    localhost. Its $NO_PROXY has no ranges of addresses, such as 10.96.0.0/12.
    """
    return create() if is_loopback(url) or _is_in_range(url) else None


def _is_in_range(url: str) -> bool:
    """Return whether $NO_PROXY has a range with the address of a URL. Names are not resolved."""
    ranges = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    for each in ranges.split(",") if "/" in ranges else ():
        with suppress(ValueError):
            if ipaddress.ip_address(urlsplit(url).hostname or "") in ipaddress.ip_network(each.strip(), strict=False):
                return True
    return False


def reach_directly(sdk: Any, create_http: Callable[..., Any]) -> Any:
    """Return a client of a model's SDK that uses no proxy if its address is of this machine.

    `create_http` is the SDK's kind of HTTP client.
    """
    import httpx2

    transport = direct_transport(str(sdk.base_url), httpx2.AsyncHTTPTransport)
    return sdk if transport is None else sdk.copy(http_client=create_http(transport=transport))


def find_proxy(url: str) -> str | None:
    """Return the proxy that the environment names for an address, without its credentials, or None."""
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    if is_loopback(url) or _is_in_range(url) or proxy_bypass(parts.hostname or ""):
        return None
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy:
        return None
    scheme, _, rest = proxy.rpartition("://")
    return f"{scheme or 'http'}://{rest.rpartition('@')[2]}"


def describe_failure(error: BaseException) -> str:
    """Return the reason of a failure in words: that of the operating system if there is one."""
    cause: BaseException | None = error
    for _ in range(_MAX_CAUSES):
        if isinstance(cause, BaseExceptionGroup):
            cause = cause.exceptions[0]
        elif isinstance(cause, OSError) and cause.strerror:
            return os.strerror(cause.errno or 0) if cause.strerror.startswith(_ASYNCIO) else cause.strerror
        elif cause is not None:
            cause = cause.__cause__ or cause.__context__
    return str(error) or _WITHOUT_TEXT.get(type(error).__name__, type(error).__name__)


class PlainHttpWarning(UserWarning):
    """A key is about to be sent over plain HTTP to an address that is not this machine's own."""


def warn_of_plain_http(url: str, *, stacklevel: int) -> None:
    """Warn that a key sent to this address can be read on the way, unless $MCP_EXEC_PLAIN_HTTP says that it may be.

    `stacklevel` is that of the caller for `warnings.warn`.
    """
    if not _is_exposed(url) or os.environ.get(PLAIN_HTTP_VARIABLE, "").lower() in _YES:
        return
    message = (
        f"the key is sent to {url} over plain HTTP, so it can be read and used by whoever sees the packets; use "
        f"https://, or set {PLAIN_HTTP_VARIABLE}=yes if plain HTTP is intended"
    )
    warnings.warn(message, PlainHttpWarning, stacklevel=stacklevel + 1)


@contextmanager
def writing_lines(write: Callable[[str], None]) -> Iterator[None]:
    """Pass the message of each such warning to `write` while the context lasts, for programs."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", PlainHttpWarning)
        show = warnings.showwarning

        def write_line(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if issubclass(category, PlainHttpWarning):
                write(str(message))
            else:
                show(message, category, filename, lineno, file, line)

        warnings.showwarning = write_line
        yield


def _is_exposed(url: str) -> bool:
    """Return whether requests to an address are sent unencrypted over a network."""
    return urlsplit(url).scheme == "http" and not is_loopback(url)
