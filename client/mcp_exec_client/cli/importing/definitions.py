"""Definitions of tools in the forms of Anthropic, OpenAI and MCP, read from JSON.

All text of a definition is data: it is bounded here, written as JSON, and escaped when it is shown.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

from mcp_exec_client.cli.exit_codes import CommandError
from mcp_exec_tools.names import identifier

MAX_TOOLS: Final = 500
_MAX_DESCRIPTION: Final = 16 * 1024
_MAX_SCHEMA: Final = 64 * 1024
_MAX_DEPTH: Final = 32
_NAME: Final = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9_.-]{1,128}", re.ASCII)  # `.` and `..` change an address
_SCHEMAS: Final = ("input_schema", "inputSchema", "parameters")
"""Key of the schema of arguments in the forms of Anthropic, MCP and OpenAI."""
_SHOWN: Final = 80
_MAX_FILE_BYTES: Final = 4 * 1024 * 1024
_TEXT_OR_COMMENT: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TEXT_OR_COMMA: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|,(?=\s*[}\]])')


class _NotImported(Exception):
    """Reason why a definition is not imported."""


@dataclass(frozen=True, kw_only=True)
class ImportProblem:
    """A tool that cannot be imported, and why."""

    tool: str
    """Its name, or its place if it has none."""
    reason: str


@dataclass(kw_only=True)
class ImportedTools:
    """Tools that can be imported, as entries of `tools/list`, and those that cannot."""

    entries: dict[str, dict[str, Any]] = field(default_factory=dict)
    problems: list[ImportProblem] = field(default_factory=list)

    def add(self, entry: dict[str, Any]) -> None:
        """Add an entry, or a problem if its name, text or schema is not acceptable."""
        name = entry["name"]
        try:
            _check_name(name, self.entries)
            _check_description(entry["description"])
            for key in ("inputSchema", "outputSchema", "annotations"):
                _check_object(entry.get(key, {}), key)
            _check_type(entry["inputSchema"])
        except _NotImported as problem:
            self.problems.append(ImportProblem(tool=name[:_SHOWN], reason=str(problem)))
            return
        self.entries[name] = entry


def read_definitions(data: Any, *, path: Path) -> ImportedTools:
    """Read definitions: a list, `{"tools": [...]}`, or an answer of `tools/list`. Raises CommandError."""
    if isinstance(data, dict) and isinstance(data.get("result"), dict):
        data = data["result"]
    tools = data.get("tools") if isinstance(data, dict) else data
    if not isinstance(tools, list):
        keys = ", ".join(sorted(data)[:10])[:_SHOWN] if isinstance(data, dict) else ""
        given = f"an object with {keys or 'no keys'}" if isinstance(data, dict) else f"a JSON {type(data).__name__}"
        expected = '{"tools": [...]}, or the configuration of a client: {"mcpServers": {...}}'
        raise CommandError(f"{path} has no list of tools: it is {given}; expected is a list of tools, {expected}")
    return parse_definitions(tools)


def parse_definitions(items: list[Any]) -> ImportedTools:
    """Parse definitions; each may have its own form. Raises CommandError if there are too many."""
    if len(items) > MAX_TOOLS:
        raise CommandError(f"{len(items)} tools are given, but at most {MAX_TOOLS} are allowed: split the file")
    found = ImportedTools()
    for index, item in enumerate(items):
        try:
            found.add(_parse(item))
        except _NotImported as problem:
            found.problems.append(ImportProblem(tool=_name_of(item, index), reason=str(problem)))
    return found


def _parse(item: Any) -> dict[str, Any]:
    """Return a definition as an entry of `tools/list`."""
    if not isinstance(item, Mapping):
        raise _NotImported(f"it is not an object but {type(item).__name__}")
    kind = item.get("type")
    if kind not in (None, "function", "custom"):
        raise _NotImported(
            f"its type is {str(kind)[:_SHOWN]!r}: a model's provider runs such tools; allowed are function and custom"
        )
    if isinstance(item.get("function"), Mapping):  # of chat completions; that of responses has no such level
        item = item["function"]
    keys = [key for key in _SCHEMAS if item.get(key) is not None]
    if len(keys) > 1:
        raise _NotImported(f"it has {' and '.join(keys)}: one form has one of them")
    if not keys and kind == "custom":
        raise _NotImported("a custom tool takes free text, without a schema; code calls tools by arguments")
    key = keys[0] if keys else "parameters" if kind == "function" else "inputSchema"
    schema = item.get(key, {"type": "object", "properties": {}})
    name, description = item.get("name"), item.get("description")
    if not isinstance(name, str) or not name:
        raise _NotImported("it has no name")
    if not isinstance(schema, Mapping):
        raise _NotImported(f"its {key} is not an object but {type(schema).__name__}")
    if description is not None and not isinstance(description, str):
        raise _NotImported(f"its description is not a text but {type(description).__name__}")
    entry = {"name": name, "description": description or "", "inputSchema": dict(schema)}
    if key == "inputSchema":
        more = ("outputSchema", "annotations")
        entry |= {field: item[field] for field in more if isinstance(item.get(field), Mapping)}
    return entry


def _check_name(name: str, taken: Iterable[str]) -> None:
    if not _NAME.fullmatch(name):
        raise _NotImported(
            "its name must have 1 to 128 letters, digits, '_', '-' and '.'; "
            f"a name that is allowed is {identifier(name[:64])}"
        )
    if name in taken:
        raise _NotImported("an earlier tool has the same name: rename one, or remove it")


def _check_description(text: str) -> None:
    if len(text) > _MAX_DESCRIPTION:
        raise _NotImported(f"its description has {len(text)} characters; at most {_MAX_DESCRIPTION} are allowed")
    if not _is_unicode(text):
        raise _NotImported("its description has half of a surrogate pair; allowed is Unicode text")


def _check_object(value: Mapping[str, Any], key: str) -> None:
    if _measure_depth(value) > _MAX_DEPTH:
        raise _NotImported(f"its {key} is nested deeper than {_MAX_DEPTH} levels")
    text = json.dumps(value, ensure_ascii=False)
    if len(text) > _MAX_SCHEMA:
        raise _NotImported(f"its {key} has {len(text)} characters; at most {_MAX_SCHEMA} are allowed")
    if not _is_unicode(text):
        raise _NotImported(f"its {key} has half of a surrogate pair; allowed is Unicode text")


def _check_type(schema: Mapping[str, Any]) -> None:
    if schema.get("type", "object") != "object":
        raise _NotImported(f"its schema has the type {str(schema['type'])[:_SHOWN]!r}; allowed is 'object'")
    properties = schema.get("properties", {})
    if not isinstance(properties, Mapping):
        raise _NotImported(f"its schema's properties are not an object but {type(properties).__name__}")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _measure_depth(value: Any) -> int:
    """Return how deep lists and objects are nested, without recursion."""
    depth, level = 0, [value]
    while level:
        depth += 1
        level = [
            child
            for each in level
            if isinstance(each, (Mapping, list))
            for child in (each.values() if isinstance(each, Mapping) else each)
        ]
    return depth


def _name_of(item: Any, index: int) -> str:
    inner = item.get("function", item) if isinstance(item, Mapping) else None
    name = inner.get("name") if isinstance(inner, Mapping) else None
    return name[:_SHOWN] if isinstance(name, str) and name else f"number {index + 1}"


def read_json(path: Path) -> Any:
    """Return the data of a file. Raises CommandError."""
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise CommandError(f"{path}: {error}") from error
    if len(content) > _MAX_FILE_BYTES:
        raise CommandError(f"{path} is larger than {_MAX_FILE_BYTES} bytes")
    try:
        text = content.decode("utf-8-sig")
        try:
            return json.loads(text, parse_constant=_refuse_constant)
        except ValueError:
            if (plain := _strip(text)) == text:
                raise
            return json.loads(plain, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{path} is not valid JSON: {error}") from error


def _strip(text: str) -> str:
    """Return the text without comments and trailing commas; lines keep their numbers."""
    text = _TEXT_OR_COMMENT.sub(lambda found: found[0] if found[0][0] == '"' else "\n" * found[0].count("\n"), text)
    return _TEXT_OR_COMMA.sub(lambda found: found[0] if found[0][0] == '"' else "", text)


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not allowed")
