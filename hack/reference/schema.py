"""The fields of a JSON Schema, structural or with references, as rows of a table: path, type, default and meaning."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hack.reference.markdown import format_code

from mcp_exec_api.meta import PATTERN_WORDS

Schema = Mapping[str, Any]

_LIMITS: Final = (
    ("minimum", "at least {}"),
    ("maximum", "at most {}"),
    ("minLength", "at least {} characters"),
    ("maxLength", "at most {} characters"),
    ("minItems", "at least {} items"),
    ("maxItems", "at most {} items"),
    ("minProperties", "at least {} of them"),
    ("maxProperties", "at most {} of them"),
)
_MAX_ENUM: Final = 20


def list_fields(schema: Schema, path: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Yield path, type, default and meaning of each field in any depth. An item of a list is `[]`."""
    required = schema.get("required", ())
    for name, part in schema.get("properties", {}).items():
        own = f"{path}.{name}" if path else name
        default = "required" if name in required else format_default(part)
        yield format_code(own), describe_type(part), default, describe(part)
        yield from list_fields(*_enter(part, own))


def _enter(part: Schema, path: str) -> tuple[Schema, str]:
    """Return the schema that has the fields of a part, and their path."""
    if isinstance(items := part.get("items"), Mapping):
        return _enter(items, f"{path}[]")
    if isinstance(values := part.get("additionalProperties"), Mapping):
        return _enter(values, f"{path}.NAME")
    return part, path


def describe_type(part: Schema) -> str:
    """Return the type of a value in words."""
    if reference := part.get("$ref"):
        name = str(reference).rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if options := part.get("anyOf") or part.get("oneOf"):
        names = dict.fromkeys(describe_type(option) for option in options)
        return " or ".join(name for name in names if name) or "any"
    kind = part.get("type")
    if kind is None and part.get("maxProperties") == part.get("maxItems") == 0:
        return "string or number"
    if kind == "array":
        return f"list of {describe_type(part.get('items') or {})}"
    if kind == "object" and isinstance(values := part.get("additionalProperties"), Mapping) and values:
        return f"map to {describe_type(values)}"
    if part.get("format") == "date-time":
        return "time"
    if part.get("x-kubernetes-int-or-string"):
        return "integer or string"
    return str(kind) if kind else "any"


def format_default(part: Schema) -> str:
    """Return the default of a field as JSON; of an object, its fields have theirs."""
    if "default" not in part or part["default"] is None or isinstance(part["default"], Mapping):
        return ""
    return format_code(json.dumps(part["default"], ensure_ascii=False))


def format_limit(text: str, number: float) -> str:
    """Return a limit in words, in the singular for 1."""
    words = text.format(number)
    return words.replace("characters", "character").replace("items", "item") if number == 1 else words


def describe(part: Schema) -> str:
    """Return the meaning of a field and what it may be."""
    return " ".join(filter(None, [str(part.get("description", "")), *_list_limits(part)]))


def _list_limits(part: Schema) -> Iterator[str]:
    if values := part.get("enum"):
        shown = ", ".join(format_code(str(value) if value != "" else '""') for value in values[:_MAX_ENUM])
        yield f"One of {shown}{' and more' if len(values) > _MAX_ENUM else ''}."
    if words := PATTERN_WORDS.get(part.get("pattern", "")):
        yield f"It is {words}."
    limits = [format_limit(text, part[name]) for name, text in _LIMITS if name in part and part[name] != 0]
    if limits:
        yield f"{', '.join(limits).capitalize()}."
    for rule in part.get("x-kubernetes-validations", ()):
        yield f"Rule: {rule.get('message', rule['rule'])}."
