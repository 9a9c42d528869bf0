"""What parameters a tool has, as far as its schema names them.

The schema comes from the server and is not trusted: references outside of it are not followed, nor deep ones.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mcp_exec_tools.catalog import Tool

_MAX_TEXT: Final = 300
_MAX_DEPTH: Final = 8
_MAX_PARAMETERS: Final = 200
_MAX_NAMES: Final = 10_000
_MAX_PARTS: Final = 64
_MAX_SCHEMAS: Final = 1000
"""Looked at in all: each part may refer to the same others again."""


@dataclass(frozen=True, kw_only=True)
class ToolParameters:
    """What is known of a tool's parameters without looking at values."""

    parameters: tuple[str, ...]
    required: tuple[str, ...]
    """Those that must be given."""
    defaults: Mapping[str, Any]
    """What is sent for those that the schema wants, though it has a value for them."""
    closed: bool
    """Whether others than these are unknown."""

    @property
    def listed(self) -> list[str]:
        """The parameters, required ones first and with a star."""
        needed = set(self.required)
        first = [f"{name[:_MAX_TEXT]}*" for name in self.parameters if name in needed]
        rest = [name[:_MAX_TEXT] for name in self.parameters if name not in needed]
        return (first + rest)[:_MAX_PARAMETERS]


@dataclass(kw_only=True)
class _Found:
    names: dict[str, None] = field(default_factory=dict)
    left: int = _MAX_SCHEMAS
    """Schemas that may still be looked at."""


def list_parameters(tool: Tool) -> list[str]:
    """The tool's parameters, required ones first and with a star."""
    return parse_parameters(tool.input_schema).listed


def parse_parameters(schema: Mapping[str, Any]) -> ToolParameters:
    """The parameters of a tool by its input schema."""
    found = _Found()
    closed = _collect(schema, schema, found, depth=0) and bool(found.names or _is_empty(schema))
    required = schema.get("required")
    wanted = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    said = {name: each for name in wanted if isinstance(each := read_properties(schema).get(name), Mapping)}
    # servers that write their schemas for what a tool sees, defaults filled in, call all of these required
    defaults = {name: each["default"] for name, each in said.items() if "default" in each}
    return ToolParameters(
        parameters=tuple(found.names),
        required=tuple(name for name in wanted if name not in defaults),
        defaults=defaults,
        closed=closed,
    )


def read_properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the schema itself says of each parameter; its parts are not looked at."""
    properties = schema.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _is_empty(schema: Mapping[str, Any]) -> bool:
    """Whether the schema says that there are no parameters."""
    return schema.get("additionalProperties") is False


def _collect(schema: Any, root: Mapping[str, Any], found: _Found, *, depth: int) -> bool:
    """Adds the parameters that a schema names, and tells whether these are all that it takes."""
    found.left -= 1
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH or found.left < 0 or len(found.names) > _MAX_NAMES:
        return False
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        found.names.update(dict.fromkeys(name for name in properties if isinstance(name, str)))
    # MCP's servers seldom say additionalProperties: what no schema names is taken for a mistake unless it is said
    closed = schema.get("additionalProperties", False) is False and "patternProperties" not in schema
    for part in _parts(schema, root):
        closed = _collect(part, root, found, depth=depth + 1) and closed
    return closed


def _parts(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Iterator[Any]:
    if isinstance(reference := schema.get("$ref"), str):
        yield _local(reference, root)
    for keyword in ("allOf", "anyOf", "oneOf"):
        if isinstance(listed := schema.get(keyword), list):
            yield from listed[:_MAX_PARTS]
    for keyword in ("if", "then", "else"):
        if keyword in schema:
            yield schema[keyword]


def _local(reference: str, root: Mapping[str, Any]) -> Any:
    found: Any = root
    if not reference.startswith("#"):
        return None
    for part in reference.removeprefix("#").strip("/").split("/"):
        if part:
            found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    return found if found is not root else None
