"""Files of workspaces: which paths are allowed, and the frames of contents on their way.

Sandbox and broker have the same rules. Who receives a path or a frame checks it, whoever sent it.
"""

import re
import unicodedata
from collections.abc import Iterable
from typing import Final

MAX_PATH_BYTES: Final = 1024
"""Longest path, in bytes of UTF-8."""
MAX_NAME_BYTES: Final = 255
"""Longest name of a file or folder, in bytes of UTF-8, as in Linux."""
MAX_PATH_DEPTH: Final = 32
"""Most names in a path."""
MODES: Final = (0o644, 0o755)
"""Permissions of a file: a plain one, and one that can be executed."""
RESERVED: Final = frozenset({".mcp-exec", "artifacts", "servers"})
"""Entries of the working folder that are the sandbox's own and no part of a workspace."""
MAX_FRAME_HEAD: Final = 64 + 1 + 19 + 1
"""Longest head of a frame, in bytes."""

_HIDDEN: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Categories of characters without a place in a name: control characters, surrogates, line and paragraph separators."""
_BIDIRECTIONAL: Final = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that show a name in another order than it has."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_. -]*(?:/[A-Za-z0-9_][A-Za-z0-9_. -]*)*")
"""Most paths, which need no look at each character."""
_HEAD: Final = re.compile(rb"([0-9a-f]{64}) (0|[1-9][0-9]{0,18})\n")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


def check_path(path: str) -> None:
    """Raise ValueError, with the reason, if a path is not allowed in a workspace."""
    size = len(path) if path.isascii() else len(path.encode(errors="surrogatepass"))
    if not 0 < size <= MAX_PATH_BYTES:
        raise ValueError(f"a path has 1 to {MAX_PATH_BYTES} bytes, this one has {size}")
    if not _PLAIN.fullmatch(path):
        _check_characters(path)
    names = path.split("/")
    if len(names) > MAX_PATH_DEPTH:
        raise ValueError(f"a path has at most {MAX_PATH_DEPTH} names, {path[:80]!r} has {len(names)}")
    for name in names:
        if name in ("", ".", ".."):
            raise ValueError(f"a path is relative and has no empty name, `.` or `..`, unlike {path[:80]!r}")
        if len(name) * 4 > MAX_NAME_BYTES and len(name.encode()) > MAX_NAME_BYTES:
            raise ValueError(f"a name in a path has at most {MAX_NAME_BYTES} bytes, unlike one in {path[:80]!r}")


def check_new_path(path: str) -> None:
    """Raise ValueError, with the reason, if no file can be written to a path: it is not allowed, or no code sees it."""
    check_path(path)
    if path.partition("/")[0] in RESERVED:
        *others, last = sorted(RESERVED)
        raise ValueError(
            f"code has folders of its own as {', '.join(others)} and {last}, so that it would never see {path[:80]!r}: "
            "write it below another name"
        )


def check_paths(paths: Iterable[str]) -> None:
    """Raise ValueError if a path is there twice, or is both a file and a folder."""
    files: set[str] = set()
    for path in paths:
        if path in files:
            raise ValueError(f"path {path[:80]!r} is there twice")
        files.add(path)
    folders: set[str] = set()
    for path in files:
        end = path.rfind("/")
        while end > 0 and (folder := path[:end]) not in folders:
            if folder in files:
                raise ValueError(f"path {folder[:80]!r} is both a file and a folder")
            folders.add(folder)
            end = folder.rfind("/")


def is_digest(text: str) -> bool:
    """Return whether a text is a SHA-256 in 64 lower-case hexadecimal digits."""
    return _DIGEST.fullmatch(text) is not None


def build_frame_head(sha256: str, size: int) -> bytes:
    """Return the head of a frame, which `size` bytes of content follow."""
    return f"{sha256} {size}\n".encode()


def parse_frame_head(line: bytes) -> tuple[str, int]:
    """Return digest and size of a frame from its head, line break included. Raises ValueError."""
    match = _HEAD.fullmatch(line)
    if match is None:
        raise ValueError("the head of a frame is `SHA256 SIZE`, 64 hexadecimal digits and a number, and a line break")
    return match[1].decode(), int(match[2])


def _check_characters(path: str) -> None:
    for character in path:
        if unicodedata.category(character) in _HIDDEN or character == "\\":
            raise ValueError(f"a path has no control characters, surrogates and backslashes, unlike {path[:80]!r}")
    if _BIDIRECTIONAL.search(path):
        raise ValueError(f"a path has no characters that change its direction, unlike {path[:80]!r}")
