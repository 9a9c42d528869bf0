"""What a tool answered: a plain value where there is one, else text beside files, whose bytes stay on disk."""

import base64
import binascii
import contextlib
import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, is_typeddict

from mcp_exec_sandbox.tools.errors import ToolProtocolError

FOLDER = "tool_results"
"""Where in the workspace the bytes of answers are kept."""

_EXTENSIONS = {
    "application/gzip": "gz",
    "application/json": "json",
    "application/pdf": "pdf",
    "application/zip": "zip",
    "audio/mpeg": "mp3",
    "audio/ogg": "ogg",
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "image/gif": "gif",
    "image/jpeg": "jpg",
    "image/png": "png",
    "image/svg+xml": "svg",
    "image/webp": "webp",
    "text/csv": "csv",
    "text/html": "html",
    "text/plain": "txt",
    "video/mp4": "mp4",
}


@dataclasses.dataclass(frozen=True)
class Blob:
    """Bytes of an answer, kept in a file. `open(blob)` and `Path(blob)` work."""

    path: str
    mime_type: str
    size: int

    def __fspath__(self) -> str:
        return self.path

    def read(self) -> bytes:
        """The bytes."""
        return Path(self.path).read_bytes()


@dataclasses.dataclass(frozen=True)
class Link:
    """A resource that the tool points to, and did not send."""

    uri: str
    name: str = ""
    mime_type: str = ""
    description: str = ""


@dataclasses.dataclass(frozen=True)
class ToolResult:
    """An answer that is more than one value: text, images, other files and links."""

    text: str = ""
    """All text of it, embedded text resources included."""
    images: list[Blob] = dataclasses.field(default_factory=list)
    """Images, each in a file."""
    blobs: list[Blob] = dataclasses.field(default_factory=list)
    """Other bytes, each in a file: sound, embedded resources."""
    links: list[Link] = dataclasses.field(default_factory=list)
    """Resources that the tool points to."""
    structured: Any = None
    """The structured content, where the tool sent some; bytes that it repeats are the path of their file there."""

    def json(self) -> Any:
        """The structured content, else the text as JSON. Raises ValueError where it is neither."""
        return self.structured if self.structured is not None else json.loads(self.text)

    def __getitem__(self, key: Any) -> Any:
        """A part of `json()`: the wrapper's type says what there is, whether files came beside it or not."""
        return self.json()[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.json())

    def __str__(self) -> str:
        files = [f"[{blob.mime_type}, {blob.size} bytes: {blob.path}]" for blob in (*self.images, *self.blobs)]
        links = [f"[{link.name or 'link'}: {link.uri}]" for link in self.links]
        return "\n".join([*([self.text] if self.text else []), *files, *links])


class Files:
    """Names files for answers: 1.png, 2.pdf, in the workspace's folder for them."""

    def __init__(self, workspace: Path) -> None:
        self._folder = workspace / FOLDER
        self._last = 0

    def save(self, data: bytes, mime_type: str) -> Blob:
        """Write the bytes to a new file. Raises OSError where there is no room."""
        self._folder.mkdir(exist_ok=True)
        extension = _EXTENSIONS.get(mime_type.partition(";")[0].strip().lower(), "bin")
        while True:
            self._last += 1
            path = self._folder / f"{self._last}.{extension}"
            try:
                with path.open("xb") as file:
                    file.write(data)
            except FileExistsError:
                continue
            return Blob(path=str(path), mime_type=mime_type, size=len(data))


def result_of(content: list[Any], structured: Any, files: Files) -> ToolResult:
    """The result that MCP content blocks describe; blocks of unknown kinds become text."""
    result = ToolResult()
    texts: list[str] = []
    paths: dict[str, str] = {}
    for block in content:
        if not isinstance(block, dict):
            continue
        kind = block.get("type")
        if kind == "text":
            texts.append(_text(block, "text"))
        elif kind in ("image", "audio"):
            blob = _save(block, "data", files, paths)
            (result.images if kind == "image" else result.blobs).append(blob)
        elif kind == "resource_link":
            names = ("uri", "name", "mimeType", "description")
            result.links.append(Link(*(_text(block, name) for name in names)))
        elif kind == "resource":
            _add_resource(block.get("resource"), result, texts, files, paths)
        else:
            texts.append(json.dumps(block, ensure_ascii=False))
    return dataclasses.replace(result, text="\n".join(texts), structured=_without_bytes(structured, paths))


def _add_resource(resource: Any, result: ToolResult, texts: list[str], files: Files, paths: dict[str, str]) -> None:
    if not isinstance(resource, dict):
        return
    if "blob" not in resource:
        texts.append(_text(resource, "text"))
        return
    blob = _save(resource, "blob", files, paths)
    (result.images if blob.mime_type.startswith("image/") else result.blobs).append(blob)


def _save(block: Mapping[str, Any], name: str, files: Files, paths: dict[str, str]) -> Blob:
    """The block's bytes in a file; `paths` gets its path by their base64."""
    blob = files.save(_decode(block.get(name)), _text(block, "mimeType"))
    if blob.size:
        paths[block[name]] = blob.path
    return blob


def _without_bytes(structured: Any, paths: Mapping[str, str]) -> Any:
    """The structured content with paths in the place of base64: some servers send their blocks there once more."""
    whole = [structured]
    left: list[Any] = [whole] if paths else []
    while left:  # not by recursion: it may be deeper than Python's stack
        each = left.pop()
        for key, value in list(each.items() if isinstance(each, dict) else enumerate(each)):
            if isinstance(value, str) and value in paths:
                each[key] = paths[value]
            elif isinstance(value, dict | list):
                left.append(value)
    return whole[0]


def _decode(data: object) -> bytes:
    if not isinstance(data, str):
        raise ToolProtocolError("the tool sent a file without bytes", reason="UnexpectedResult")
    try:
        return base64.b64decode(data)
    except (binascii.Error, ValueError):
        raise ToolProtocolError("the tool sent bytes that are no base64", reason="UnexpectedResult") from None


def _text(block: Mapping[str, Any], name: str) -> str:
    value = block.get(name)
    return value if isinstance(value, str) else ""


def cast(value: Any, wanted: Any, *, tool: str) -> Any:
    """The value as the type that the caller asked for: a dataclass, a TypedDict, a pydantic model, a list of those.

    Each of these may be `| None`. Any other type asks for nothing. Raises ToolProtocolError (reason UnexpectedResult)
    where the value is of another kind, or fields are missing.
    """
    if not _asks(wanted):
        return value
    if (inner := _optional(wanted)) is not None:
        return None if value is None else cast(value, inner, tool=tool)
    if isinstance(value, ToolResult):
        with contextlib.suppress(ValueError):
            value = value.json()
    if get_origin(wanted) is list:
        if not isinstance(value, list):
            raise _unexpected(wanted, f"it is {_kind(value)}", tool)
        return [cast(each, get_args(wanted)[0], tool=tool) for each in value]
    if callable(validate := getattr(wanted, "model_validate", None)):
        try:
            return validate(value)
        except (ValueError, TypeError) as error:
            raise _unexpected(wanted, str(error)[:2000], tool) from error
    if not isinstance(value, dict):
        raise _unexpected(wanted, f"it is {_kind(value)}", tool)
    if is_typeddict(wanted):
        _require(wanted.__required_keys__, value, wanted, tool)
        return value
    fields = [field for field in dataclasses.fields(wanted) if field.init]
    _require([field.name for field in fields if _is_required(field)], value, wanted, tool)
    return wanted(**{field.name: value[field.name] for field in fields if field.name in value})


def _asks(wanted: Any) -> bool:
    """Whether a type says something of a value."""
    if get_origin(wanted) is list:
        return any(map(_asks, get_args(wanted)))
    if (inner := _optional(wanted)) is not None:
        return _asks(inner)
    if not isinstance(wanted, type) or wanted is ToolResult:
        return False
    return is_typeddict(wanted) or dataclasses.is_dataclass(wanted) or callable(getattr(wanted, "model_validate", None))


def _optional(wanted: Any) -> Any:
    """X of `X | None`; None of any other type, wider unions too: which of them is meant can't be told."""
    members = get_args(wanted) if get_origin(wanted) in (Union, UnionType) else ()
    others = [each for each in members if each is not type(None)]
    return others[0] if len(others) == 1 else None


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _require(names: Any, value: dict[str, Any], wanted: type, tool: str) -> None:
    missing = sorted(name for name in names if name not in value)
    if missing:
        raise _unexpected(wanted, f"it lacks {', '.join(missing)} and has {', '.join(value)[:1000]}", tool)


def _unexpected(wanted: Any, why: str, tool: str) -> ToolProtocolError:
    message = f"the result is no {_name(wanted)}: {why}"
    return ToolProtocolError(message, tool=tool, reason="UnexpectedResult")


def _name(wanted: Any) -> str:
    if get_origin(wanted) is list:
        return f"list of {_name(get_args(wanted)[0])}"
    return getattr(wanted, "__name__", str(wanted))


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    kinds = {str: "text", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return kinds.get(type(value), f"a {type(value).__name__}")
