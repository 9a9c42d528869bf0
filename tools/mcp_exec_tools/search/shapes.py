"""Values in queries, such as `#231`, `acme/web` or `notes.md`: not words of a tool, but signs of its parameters."""

import re
from typing import Final

_EXTENSIONS: Final = (
    "c cfg conf cpp cs csv css doc docx env go gz h htm html ini ipynb java js json jsx kt log md parquet pdf php ppt "
    "pptx py rb rs rst rtf sh sql swift tar tex toml ts tsv tsx txt xls xlsx xml yaml yml zip"
)
_MEDIA: Final = "bmp flac gif jpeg jpg m4a mov mp3 mp4 ogg png svg tif tiff wav webm webp"
_SHAPES: Final[dict[str, tuple[str, str]]] = {
    "url": (r"https?://\S+", "url fetch"),
    "email": (r"[\w.+-]+@[\w-]+\.[\w.-]+", "user email"),
    "media": (rf"[\w./~@-]*\w\.(?:{'|'.join(_MEDIA.split())})", "media file path"),
    "file": (rf"[\w./~@-]*\w\.(?:{'|'.join(_EXTENSIONS.split())})", "file path"),
    "path": (r"(?:~|\.{1,2})?(?:/[\w.~-]+)+/?|[\w.-]+(?:/[\w.-]+){2,}/?", "path directory"),
    "repository": (r"[A-Za-z][\w.-]*/[A-Za-z][\w.-]*", "repository owner github"),
    "number": (r"#\d+", "issue pull number"),
    "channel": (r"#[A-Za-z][\w-]*", "channel"),
    "user": (r"@[A-Za-z][\w-]*", "user"),
    "commit": (r"(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,40}", "commit sha"),
    "version": (r"v?\d+\.\d+\.\d+|v\d+(?:\.\d+)?", "version tag release"),
    "time": (r"\d{1,2}:\d{2}|\d{1,2}[ap]m", "time"),
}
"""Pattern of each kind of value, and words for its parameters. The first one that fits counts."""
_VALUES: Final = re.compile("|".join(f"(?P<{name}>{pattern})" for name, (pattern, _) in _SHAPES.items()), re.IGNORECASE)
_QUOTED: Final = re.compile(r'"[^"“”«»`\n]+"|“[^"“”«»`\n]+”|«[^"“”«»`\n]+»|`[^"“”«»`\n]+`')
_EDGES: Final = ".,;:!?()[]{}'\u2019\""
_LONGEST: Final = 100
"""Maximum number of characters of a value that is recognised."""


def take_values(query: str) -> tuple[str, list[str]]:
    """Return a query without values and quoted text, and the words for the values' parameters, each once.

    A query that is nothing else stays as it is.
    """
    found: dict[str, None] = {}
    rest: list[str] = []
    for token in _QUOTED.sub(" ", query).split():
        value = token.strip(_EDGES)
        if len(value) <= _LONGEST and (match := _VALUES.fullmatch(value)):
            found.update(dict.fromkeys(_SHAPES[match.lastgroup or ""][1].split()))
        else:
            rest.append(token)
    return (" ".join(rest), list(found)) if rest else (query, [])
