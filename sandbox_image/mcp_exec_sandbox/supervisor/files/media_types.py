"""Media types of artifacts: by file name, and checked if the code gives one."""

import re

UNKNOWN = "application/octet-stream"
_TYPE = re.compile(r"[a-z0-9.+-]{1,63}/[a-z0-9.+-]{1,63}")
_BY_EXTENSION = {
    "csv": "text/csv",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "gif": "image/gif",
    "gz": "application/gzip",
    "htm": "text/html",
    "html": "text/html",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "json": "application/json",
    "log": "text/plain",
    "md": "text/markdown",
    "mp3": "audio/mpeg",
    "mp4": "video/mp4",
    "parquet": "application/vnd.apache.parquet",
    "pdf": "application/pdf",
    "png": "image/png",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "py": "text/x-python",
    "svg": "image/svg+xml",
    "tsv": "text/tab-separated-values",
    "txt": "text/plain",
    "wav": "audio/wav",
    "webp": "image/webp",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "xml": "application/xml",
    "yaml": "application/yaml",
    "yml": "application/yaml",
    "zip": "application/zip",
}
_TEXTS = frozenset({"application/json", "application/xml", "application/yaml"})


def guess_type(name: str) -> str:
    """Return the media type that a file name suggests."""
    return _BY_EXTENSION.get(name.rpartition(".")[2].lower(), UNKNOWN) if "." in name else UNKNOWN


def choose_type(name: str, given: str | None) -> str:
    """Return the given media type, or that of the file name, which is better than `text/plain` too."""
    guessed = guess_type(name)
    return guessed if given is None or (given in ("text/plain", UNKNOWN) and guessed != UNKNOWN) else given


def normalize_type(value: object) -> str | None:
    """Return a media type in lower case without parameters, or None if it is none."""
    if not isinstance(value, str):
        return None
    plain = value[:200].partition(";")[0].strip().lower()
    return plain if _TYPE.fullmatch(plain) else None


def is_text(media_type: str) -> bool:
    """Return whether the beginning of such a file is readable as text."""
    return (media_type.startswith("text/") and media_type != "text/html") or media_type in _TEXTS
