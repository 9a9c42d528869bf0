"""A warning before a key is sent in plain text over a network."""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TextIO
from urllib.parse import urlsplit

from mcp_exec_client.network import is_loopback

VARIABLE: Final = "MCP_EXEC_PLAIN_HTTP"
"""Environment variable that states, by one of `_YES`, that plain HTTP is intended."""
_YES: Final = frozenset({"yes", "true", "1"})


class PlainHttpWarning(UserWarning):
    """A key is about to be sent over plain HTTP to an address that is not this machine's own."""


def warn_of_plain_http(url: str, *, stacklevel: int) -> None:
    """Warn that a key sent to this address can be read on the way, unless $MCP_EXEC_PLAIN_HTTP says that it may be.

    `stacklevel` is that of the caller for `warnings.warn`.
    """
    if not _is_exposed(url) or os.environ.get(VARIABLE, "").lower() in _YES:
        return
    message = (
        f"the key is sent to {url} over plain HTTP, so it can be read and used by whoever sees the packets; use "
        f"https://, or set {VARIABLE}=yes if plain HTTP is intended"
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
