"""The parameters that the input schema of a tool names.

The schema comes from the server and is untrusted: foreign references and deep nesting are ignored.
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
"""Schemas visited in all: each part may refer to the same others again."""


@dataclass(frozen=True, kw_only=True)
class ToolParameters:
    """Parameters of a tool."""

    parameters: tuple[str, ...]
    required: tuple[str, ...]
    """Parameters without a default that a call must pass."""
    defaults: Mapping[str, Any]
    """Values of required parameters that have a default; the broker fills them in."""
    is_closed: bool
    """Whether all other parameters are unknown."""

    @property
    def marked_names(self) -> list[str]:
        """The parameters, required ones first and marked by a star."""
        needed = set(self.required)
        first = [f"{name[:_MAX_TEXT]}*" for name in self.parameters if name in needed]
        rest = [name[:_MAX_TEXT] for name in self.parameters if name not in needed]
        return (first + rest)[:_MAX_PARAMETERS]


@dataclass(kw_only=True)
class _Collected:
    names: dict[str, None] = field(default_factory=dict)
    left: int = _MAX_SCHEMAS
    """Schemas that may still be visited."""


def list_parameters(tool: Tool) -> list[str]:
    """Return the tool's parameters, required ones first and marked by a star."""
    return parse_parameters(tool.input_schema).marked_names


def parse_parameters(schema: Mapping[str, Any]) -> ToolParameters:
    """Return the parameters that an input schema names."""
    collected = _Collected()
    is_closed = _collect(schema, schema, collected, depth=0) and bool(collected.names or _is_empty(schema))
    required = schema.get("required")
    required_names = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    declared = {name: each for name in required_names if isinstance(each := read_properties(schema).get(name), Mapping)}
    # some servers describe the arguments after defaults are filled in, so parameters with defaults are required there
    defaults = {name: each["default"] for name, each in declared.items() if "default" in each}
    return ToolParameters(
        parameters=tuple(collected.names),
        required=tuple(name for name in required_names if name not in defaults),
        defaults=defaults,
        is_closed=is_closed,
    )


def read_properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema's own `properties`, without those of its parts."""
    properties = schema.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _is_empty(schema: Mapping[str, Any]) -> bool:
    """Return whether the schema allows no parameters at all."""
    return schema.get("additionalProperties") is False


def _collect(schema: Any, root: Mapping[str, Any], collected: _Collected, *, depth: int) -> bool:
    """Add the parameters that a schema names, and return whether it accepts no others."""
    collected.left -= 1
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH or collected.left < 0 or len(collected.names) > _MAX_NAMES:
        return False
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        collected.names.update(dict.fromkeys(name for name in properties if isinstance(name, str)))
    # MCP servers seldom set additionalProperties: an unnamed parameter counts as a mistake unless it is allowed
    is_closed = schema.get("additionalProperties", False) is False and "patternProperties" not in schema
    for part in _iterate_parts(schema, root):
        is_closed = _collect(part, root, collected, depth=depth + 1) and is_closed
    return is_closed


def _iterate_parts(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Iterator[Any]:
    if isinstance(reference := schema.get("$ref"), str):
        yield _resolve_reference(reference, root)
    for keyword in ("allOf", "anyOf", "oneOf"):
        if isinstance(parts := schema.get(keyword), list):
            yield from parts[:_MAX_PARTS]
    for keyword in ("if", "then", "else"):
        if keyword in schema:
            yield schema[keyword]


def _resolve_reference(reference: str, root: Mapping[str, Any]) -> Any:
    target: Any = root
    if not reference.startswith("#"):
        return None
    for part in reference.removeprefix("#").strip("/").split("/"):
        if part:
            target = target.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(target, Mapping) else None
    return target if target is not root else None
