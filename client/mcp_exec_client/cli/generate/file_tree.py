"""Generated files in a folder: compared, written atomically, removed if no longer generated."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from mcp_exec_tools.wrappers import HEADER


def plan_changes(folder: Path, files: Mapping[str, str]) -> dict[str, str | None]:
    """Return what to write (the text) and to remove (None), by path, so that the folder has these generated files.

    In the packages of these files, all other generated files are removed. Files without the header of generated ones
    stay. Raises ValueError if such a file has a path that is needed.
    """
    changes: dict[str, str | None] = {}
    for name, text in sorted(files.items()):
        path = _path_inside(folder, name)
        present = _read_text(path)
        if present == text:
            continue
        if present and not present.startswith(HEADER):
            raise ValueError(f"{path} exists and was not generated: move it, or choose another folder")
        changes[name] = text
    for package in sorted({name.partition("/")[0] for name in files if "/" in name}):
        for path in _list_sources(folder / package):
            name = path.relative_to(folder).as_posix()
            if name not in files and (_read_text(path) or "").startswith(HEADER):
                changes[name] = None
    return changes


def apply_changes(folder: Path, changes: Mapping[str, str | None]) -> None:
    """Write and remove files. Each file is replaced atomically."""
    for name, text in changes.items():
        path = _path_inside(folder, name)
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


def _path_inside(folder: Path, name: str) -> Path:
    """Return a file's path. Raises ValueError if it is outside the folder, also by a symbolic link."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{path} is not in {folder}")
    return path


def _read_text(path: Path) -> str | None:
    """Return a file's text, None if it does not exist, or a text that is never generated if it is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        return "\0"


def _list_sources(folder: Path) -> Iterator[Path]:
    for pattern in ("*.py", "*.pyi"):
        yield from sorted(folder.glob(pattern))
