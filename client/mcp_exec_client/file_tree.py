"""Generated files in a folder: compared, written one by one in whole, removed where they are no longer wanted."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from mcp_exec_tools.wrappers import HEADER


def changes(folder: Path, files: Mapping[str, str]) -> dict[str, str | None]:
    """What has to be written (its text) and removed (None), by path, so that the folder holds these files.

    Of the packages that the files belong to, generated files that are not among them go. Files that were written by
    hand stay. Raises ValueError where a file that was written by hand is in the way.
    """
    found: dict[str, str | None] = {}
    for name, text in sorted(files.items()):
        path = _inside(folder, name)
        present = _text(path)
        if present == text:
            continue
        if present and not present.startswith(HEADER):
            raise ValueError(f"{path} was not generated, and is in the way")
        found[name] = text
    for package in sorted({name.partition("/")[0] for name in files if "/" in name}):
        for path in _sources(folder / package):
            name = path.relative_to(folder).as_posix()
            if name not in files and (_text(path) or "").startswith(HEADER):
                found[name] = None
    return found


def apply(folder: Path, wanted: Mapping[str, str | None]) -> None:
    """Writes and removes. A reader sees each file as it was or as it is to be, never a part of it."""
    for name, text in wanted.items():
        path = _inside(folder, name)
        if text is None:
            path.unlink(missing_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, text)


def _write(path: Path, text: str) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            os.fchmod(file.fileno(), 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _inside(folder: Path, name: str) -> Path:
    """The file's path; ValueError where it would be outside of the folder, or in it by a link that leads out."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{path} is not in {folder}")
    return path


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        return "\0"


def _sources(folder: Path) -> Iterator[Path]:
    for pattern in ("*.py", "*.pyi"):
        yield from sorted(folder.glob(pattern))
