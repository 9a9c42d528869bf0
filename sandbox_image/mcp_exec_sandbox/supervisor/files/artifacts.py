"""Artifacts of a run: what the code has shown, and the files of the folder `artifacts`.

The runner's messages about them are hostile input: they only describe files, which the supervisor reads itself."""

import contextlib
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from mcp_exec_sandbox.protocol import ARTIFACT_TEXT_CHARACTERS, ARTIFACTS_FOLDER, MEDIA_TYPES, PREVIEW_CHARACTERS
from mcp_exec_sandbox.supervisor.files.connection import (
    Deadline,
    FilesConnection,
    TransferFailed,
    TransferRefused,
    encode_line,
)
from mcp_exec_sandbox.supervisor.files.request import KeptFiles
from mcp_exec_sandbox.supervisor.files.workspace import (
    READ_BYTES,
    FolderCursor,
    FolderScan,
    KeptFile,
    NotPlain,
    TooManyFiles,
    find_path_problem,
    hash_file,
    open_file,
    scan_folder,
    split_path,
)
from mcp_exec_tools.text import shorten, shorten_line

UNKNOWN = "application/octet-stream"
_TYPE = re.compile(r"[a-z0-9.+-]{1,63}/[a-z0-9.+-]{1,63}")
_TEXTS = frozenset({"application/json", "application/xml", "application/yaml"})
ARTIFACTS_PATH = "/v1/files/artifacts"
MAX_ARTIFACTS = 50
MAX_PREVIEWS_CHARACTERS = 32 * 1024
"""Characters of all previews of a run."""
MAX_ENTRIES = 2000
"""Files below the folder that are looked at."""


def guess_type(name: str) -> str:
    """Return the media type that a file name suggests."""
    return MEDIA_TYPES.get(name.rpartition(".")[2].lower(), UNKNOWN) if "." in name else UNKNOWN


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


@dataclass(frozen=True, kw_only=True)
class ShownFile:
    """The code's description of a file that it showed."""

    media_type: str | None
    title: str
    preview: str


class ShownFiles:
    """Files that the code shows while it runs, by path below the folder of artifacts, in their order."""

    def __init__(self) -> None:
        self.files: dict[str, ShownFile] = {}

    def add(self, message: dict[str, Any]) -> None:
        """Take in a message of the runner. One that is invalid or one too many has no effect."""
        path, title, preview = (message.get(name) for name in ("path", "title", "preview"))
        if not isinstance(path, str) or find_path_problem(path):
            return
        self.files.pop(path, None)
        if len(self.files) < MAX_ARTIFACTS:
            self.files[path] = ShownFile(
                media_type=normalize_type(message.get("mediaType")),
                title=_make_line(title, ARTIFACT_TEXT_CHARACTERS),
                preview=shorten(preview, PREVIEW_CHARACTERS) if isinstance(preview, str) else "",
            )


@dataclass(kw_only=True)
class ArtifactUpload:
    """Upload of the artifacts of one run. What can't be stored is left out, with a note."""

    kept: KeptFiles
    shown: ShownFiles
    client: FilesConnection
    deadline: Deadline
    max_artifacts: int
    max_bytes: int
    stored: list[dict[str, Any]] = field(default_factory=list)
    """Fields of the events of artifacts that the broker keeps."""
    notes: list[str] = field(default_factory=list)
    _preview_left: int = MAX_PREVIEWS_CHARACTERS

    def run(self) -> None:
        """Store the artifacts, those that the code has shown first. Raises OutOfTime."""
        try:
            scan = scan_folder(self.kept.artifacts, skip=(), max_files=MAX_ENTRIES, deadline=self.deadline)
        except (OSError, TooManyFiles) as error:
            self.notes.append(f"the folder {ARTIFACTS_FOLDER}: {error}")
            return
        self.notes += [f"{ARTIFACTS_FOLDER}/{note}" for note in scan.notes]
        paths = self._choose(scan)
        self.kept.seen = scan.files
        with contextlib.closing(FolderCursor(self.kept.artifacts)) as cursor:
            for path in paths:
                try:
                    self._store(path, hash_file(cursor, path, now=time.time_ns(), deadline=self.deadline), cursor)
                except (TransferRefused, TransferFailed) as error:
                    self.notes.append(f"{path[:200]!r} and what follows: {error}")
                    return
                except (OSError, NotPlain) as error:
                    self.notes.append(f"{path[:200]!r}: it can't be read: {type(error).__name__}")

    def _choose(self, scan: FolderScan) -> list[str]:
        """Return the paths of the new files, as many as may be stored."""
        shown = [path for path in self.shown.files if path in scan.files]
        others = sorted(
            path
            for path, signature in scan.files.items()
            if path not in self.shown.files and self.kept.seen.get(path) != signature
        )
        chosen, left, most = list[str](), self.max_bytes, min(self.max_artifacts, MAX_ARTIFACTS)
        for path in (*shown, *others):
            size = scan.files[path].size
            if len(chosen) < most and size <= left:
                chosen.append(path)
                left -= size
            else:
                limit = f"{most} artifacts with {self.max_bytes} bytes in all"
                self.notes.append(f"{path[:200]!r}: an execution may keep {limit}")
        return chosen

    def _store(self, path: str, file: KeptFile, cursor: FolderCursor) -> None:
        shown = self.shown.files.get(path)
        name = _make_line(path.rpartition("/")[2].replace('"', "'"), ARTIFACT_TEXT_CHARACTERS) or "artifact"
        media_type = choose_type(name, shown.media_type if shown is not None else None)
        head = encode_line({"name": name, "mediaType": media_type, "size": file.size, "sha256": file.sha256})
        chunks = _read_artifact(head, path, file.size, cursor)
        identifier = self.client.upload(ARTIFACTS_PATH, chunks, len(head) + file.size).get("id")
        if not isinstance(identifier, str) or not identifier.isalnum() or len(identifier) > 32:
            raise TransferFailed("the broker's answer has no id")
        preview = shown.preview if shown is not None else self._read_preview(path, media_type, cursor)
        preview = shorten(preview, min(PREVIEW_CHARACTERS, self._preview_left))
        self._preview_left -= len(preview)
        self.stored.append(
            {
                "id": identifier,
                "name": name,
                "mediaType": media_type,
                "bytes": file.size,
                "sha256": file.sha256,
                "title": shown.title if shown is not None else "",
                "preview": preview,
            }
        )

    def _read_preview(self, path: str, media_type: str, cursor: FolderCursor) -> str:
        """Return the beginning of a text file."""
        if not is_text(media_type):
            return ""
        parts, name = split_path(path)
        with open_file(cursor.open(parts), name) as (descriptor, status):
            text = os.read(descriptor, PREVIEW_CHARACTERS).decode("utf-8", "replace")
        return text if status.st_size <= PREVIEW_CHARACTERS else text[:-1] + "…"


def _read_artifact(head: bytes, path: str, size: int, cursor: FolderCursor) -> Iterator[bytes]:
    parts, name = split_path(path)
    yield head
    with open_file(cursor.open(parts), name) as (descriptor, _):
        while size and (data := os.read(descriptor, min(size, READ_BYTES))):
            size -= len(data)
            yield data
    if size:
        raise NotPlain(path)


def _make_line(value: object, limit: int) -> str:
    """Return a text as one line without control characters, or an empty text for any other value."""
    if not isinstance(value, str):
        return ""
    text = value[: 4 * limit].encode("utf-8", "replace").decode()
    return shorten_line("".join(character if character.isprintable() else " " for character in text).strip(), limit)
