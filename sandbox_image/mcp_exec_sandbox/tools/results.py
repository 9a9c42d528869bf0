"""Results of tools: a plain value if there is one, else text and files, whose bytes stay on disk."""

import base64
import binascii
import contextlib
import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, is_typeddict

from mcp_exec_sandbox.protocol import EXTENSIONS
from mcp_exec_sandbox.tools.errors import ToolProtocolError
from mcp_exec_tools.text import shorten

FOLDER = "tool_results"
"""Folder of the workspace that holds the bytes of results."""


@dataclasses.dataclass(frozen=True)
class Blob:
    """Bytes of a result in a file. `open(blob)` and `Path(blob)` work."""

    path: str
    mime_type: str
    size: int

    def __fspath__(self) -> str:
        return self.path

    def read(self) -> bytes:
        """Return the bytes."""
        return Path(self.path).read_bytes()


@dataclasses.dataclass(frozen=True)
class Link:
    """Resource that the tool links to without sending it."""

    uri: str
    name: str = ""
    mime_type: str = ""
    description: str = ""
    title: str = ""
    """Name for people."""
    size: int | None = None
    """Bytes of the resource, if the server names them."""


@dataclasses.dataclass(frozen=True)
class ToolResult:
    """Result with several parts: text, images, other files and links."""

    text: str = ""
    """All text, embedded text resources included."""
    images: list[Blob] = dataclasses.field(default_factory=list)
    """Images, each in a file."""
    blobs: list[Blob] = dataclasses.field(default_factory=list)
    """Other bytes, each in a file: audio, embedded resources."""
    links: list[Link] = dataclasses.field(default_factory=list)
    """Resources that the tool links to."""
    structured: Any = None
    """Structured content, if the tool sent any. Bytes that it repeats are replaced by the path of their file."""

    def json(self) -> Any:
        """Return the structured content, else the text as JSON.

        Raises:
            ValueError: there is no structured content, and the text is not JSON.
        """
        return self.structured if self.structured is not None else json.loads(self.text)

    def __getitem__(self, key: Any) -> Any:
        """Return a part of `json()`, so that the wrapper's type holds whether or not the result has files too."""
        return self.json()[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.json())

    def __str__(self) -> str:
        files = [f"[{blob.mime_type}, {blob.size} bytes: {blob.path}]" for blob in (*self.images, *self.blobs)]
        links = [f"[{link.name or 'link'}: {link.uri}]" for link in self.links]
        return "\n".join([*([self.text] if self.text else []), *files, *links])


class ResultFiles:
    """Files of results in the workspace: 1.png, 2.pdf."""

    def __init__(self, workspace: Path) -> None:
        self._folder = workspace / FOLDER
        self._last = 0

    def save(self, data: bytes, mime_type: str) -> Blob:
        """Write the bytes to a new file.

        Raises:
            OSError: the file can't be written.
        """
        self._folder.mkdir(exist_ok=True)
        extension = EXTENSIONS.get(mime_type.partition(";")[0].strip().lower(), "bin")
        while True:
            self._last += 1
            path = self._folder / f"{self._last}.{extension}"
            try:
                with path.open("xb") as file:
                    file.write(data)
            except FileExistsError:
                continue
            return Blob(path=str(path), mime_type=mime_type, size=len(data))


def build_result(content: list[Any], structured: Any, files: ResultFiles) -> ToolResult:
    """Build the result from MCP content blocks. Blocks of unknown types become text."""
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
            result.links.append(_read_link(block))
        elif kind == "resource":
            _add_resource(block.get("resource"), result, texts, files, paths)
        else:
            texts.append(json.dumps(block, ensure_ascii=False))
    return dataclasses.replace(result, text="\n".join(texts), structured=_replace_bytes(structured, paths))


def _add_resource(
    resource: Any, result: ToolResult, texts: list[str], files: ResultFiles, paths: dict[str, str]
) -> None:
    if not isinstance(resource, dict):
        return
    if "blob" not in resource:
        texts.append(_text(resource, "text"))
        return
    blob = _save(resource, "blob", files, paths)
    (result.images if blob.mime_type.startswith("image/") else result.blobs).append(blob)


def _save(block: Mapping[str, Any], name: str, files: ResultFiles, paths: dict[str, str]) -> Blob:
    """Save the block's bytes in a file, and add its path to `paths` by their base64."""
    blob = files.save(_decode(block.get(name)), _text(block, "mimeType"))
    if blob.size:
        paths[block[name]] = blob.path
    return blob


def _replace_bytes(structured: Any, paths: Mapping[str, str]) -> Any:
    """Replace base64 in the structured content by paths, because some servers repeat their blocks there."""
    root = [structured]
    queue: list[Any] = [root] if paths else []
    while queue:  # without recursion, because the content may be deeper than Python's stack
        container = queue.pop()
        for key, value in list(container.items() if isinstance(container, dict) else enumerate(container)):
            if isinstance(value, str) and value in paths:
                container[key] = paths[value]
            elif isinstance(value, dict | list):
                queue.append(value)
    return root[0]


def _decode(data: object) -> bytes:
    if not isinstance(data, str):
        raise ToolProtocolError("the tool sent a file without bytes", reason="UnexpectedResult")
    try:
        return base64.b64decode(data)
    except (binascii.Error, ValueError):
        raise ToolProtocolError("the tool sent bytes that are not base64", reason="UnexpectedResult") from None


def _text(block: Mapping[str, Any], name: str) -> str:
    value = block.get(name)
    return value if isinstance(value, str) else ""


def _read_link(block: Mapping[str, Any]) -> Link:
    size = block.get("size")
    return Link(
        uri=_text(block, "uri"),
        name=_text(block, "name"),
        mime_type=_text(block, "mimeType"),
        description=_text(block, "description"),
        title=_text(block, "title"),
        size=size if type(size) is int and size >= 0 else None,
    )


def cast_result(value: Any, wanted: Any, *, tool: str) -> Any:
    """Convert the value to the requested type: a dataclass, a TypedDict, a pydantic model or a list of those.

    Each of these may be `| None`. With any other type the value is returned unchanged.

    Raises:
        ToolProtocolError: (reason UnexpectedResult) the value has another type, or fields are missing.
    """
    if not _is_checked_type(wanted):
        return value
    if (inner := _get_optional_type(wanted)) is not None:
        return None if value is None else cast_result(value, inner, tool=tool)
    if isinstance(value, ToolResult):
        with contextlib.suppress(ValueError):
            value = value.json()
    if get_origin(wanted) is list:
        if not isinstance(value, list):
            raise _build_error(wanted, f"it is {_name_kind(value)}", tool)
        return [cast_result(item, get_args(wanted)[0], tool=tool) for item in value]
    if callable(validate := getattr(wanted, "model_validate", None)):
        try:
            return validate(value)
        except (ValueError, TypeError) as error:
            raise _build_error(wanted, shorten(str(error), 2000), tool) from error
    if not isinstance(value, dict):
        raise _build_error(wanted, f"it is {_name_kind(value)}", tool)
    if is_typeddict(wanted):
        _check_fields(wanted.__required_keys__, value, wanted, tool)
        return value
    fields = [field for field in dataclasses.fields(wanted) if field.init]
    _check_fields([field.name for field in fields if _is_required(field)], value, wanted, tool)
    return wanted(**{field.name: value[field.name] for field in fields if field.name in value})


def _is_checked_type(wanted: Any) -> bool:
    """Return whether a value can be converted to a type."""
    if get_origin(wanted) is list:
        return any(map(_is_checked_type, get_args(wanted)))
    if (inner := _get_optional_type(wanted)) is not None:
        return _is_checked_type(inner)
    if not isinstance(wanted, type) or wanted is ToolResult:
        return False
    return is_typeddict(wanted) or dataclasses.is_dataclass(wanted) or callable(getattr(wanted, "model_validate", None))


def _get_optional_type(wanted: Any) -> Any:
    """Return X of `X | None`, or None for any other type. In a wider union the wanted type is unknown."""
    members = get_args(wanted) if get_origin(wanted) in (Union, UnionType) else ()
    others = [member for member in members if member is not type(None)]
    return others[0] if len(others) == 1 else None


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _check_fields(names: Any, value: dict[str, Any], wanted: type, tool: str) -> None:
    missing = sorted(name for name in names if name not in value)
    if missing:
        raise _build_error(wanted, f"it lacks {', '.join(missing)} and has {shorten(', '.join(value), 1000)}", tool)


def _build_error(wanted: Any, why: str, tool: str) -> ToolProtocolError:
    message = f"the result is not of type {_name_type(wanted)}: {why}"
    return ToolProtocolError(message, tool=tool, reason="UnexpectedResult")


def _name_type(wanted: Any) -> str:
    if get_origin(wanted) is list:
        return f"list of {_name_type(get_args(wanted)[0])}"
    return getattr(wanted, "__name__", str(wanted))


def _name_kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    kinds = {str: "text", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return kinds.get(type(value), f"a {type(value).__name__}")
