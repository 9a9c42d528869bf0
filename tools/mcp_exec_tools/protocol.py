"""Versions of the protocol between sandboxes and the control plane, for both sides.

A sandbox names the versions that it speaks in its health, and a request those that its sender speaks. Both use the
highest that they have in common. A release speaks its own version and that of the release before, so that images which
are built on the sandbox's need no rebuild at each upgrade.

Version 1 is that of the first release, which names none. Since version 2, both sides name what they speak.
"""

import re
from collections.abc import Iterable
from typing import Final

PROTOCOLS: Final = (1, 2)
"""The versions that this release speaks, the newest last."""
UNNAMED_PROTOCOL: Final = 1
"""The version of a peer that names none."""
PROTOCOL_HEADER: Final = "Mcp-Exec-Protocol"
"""Header of a request: the versions that its sender speaks, separated by commas."""
MAX_PROTOCOLS: Final = 16
"""Versions that a peer may name."""
_TEXT: Final = re.compile(rf"[1-9][0-9]{{0,5}}(, ?[1-9][0-9]{{0,5}}){{0,{MAX_PROTOCOLS - 1}}}")


def choose_protocol(theirs: Iterable[int]) -> int | None:
    """Return the highest version that a peer and this release speak, or None if they have none in common."""
    return max(set(theirs).intersection(PROTOCOLS), default=None)


def format_protocols(versions: Iterable[int] = PROTOCOLS) -> str:
    """Return versions as the header has them."""
    return ", ".join(map(str, versions))


def parse_protocols(text: str) -> tuple[int, ...]:
    """Return the versions that a header names; none if it is malformed."""
    if not text:
        return (UNNAMED_PROTOCOL,)
    return tuple(map(int, text.split(","))) if _TEXT.fullmatch(text) else ()
