"""Calls of functions in one line of a language: what is the same in each."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from mcp_exec_tools.schemas.reading import as_mapping, as_sequence, fits, is_nullable, merge_all_of, resolve_reference

LONGEST: Final = 1000
"""Parameters are shown without types beyond this length of a signature, and left out beyond twice this length."""
MAX_VALUES: Final = 6
"""Values of a parameter that are shown, of those that its schema lists."""
MAX_LITERAL: Final = 80
"""Characters of all values, or of a default."""
_MEMBERS, _DEPTH = 4, 3
_NAMES: Final = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
"""Types of JSON by those of Python. A bool is an int too, so it is first."""


class Dialect(ABC):
    """How a language writes types, values and parameters."""

    any: ClassVar[str]
    null: ClassVar[str]
    scalars: ClassVar[Mapping[str, str]]
    """Names of JSON's scalar types, and of `array` and `object` without details."""

    @abstractmethod
    def format_list(self, item: str) -> str:
        """Return the type of a list of items."""

    @abstractmethod
    def format_map(self, value: str) -> str:
        """Return the type of an object whose values have a type."""

    @abstractmethod
    def format_value(self, value: object) -> str | None:
        """Return a JSON value as code, or None for a list, an object, and a number that is not one in JSON."""

    @abstractmethod
    def format_literals(self, values: Sequence[str], *, is_cut: bool) -> str:
        """Return the type that has only these values, and others if the list is cut."""

    def format_type(self, schema: object, root: Mapping[str, Any], depth: int = 0) -> str:
        """Return the type of a schema, without the fields of objects."""
        resolved, _ = resolve_reference(as_mapping(schema), root)
        about = merge_all_of(as_mapping(resolved), root)
        kind = self._format_plain_type(about, root, depth)
        accepts_null = is_nullable(as_mapping(schema)) or is_nullable(about)
        is_union = accepts_null and kind not in (self.any, self.null) and f"| {self.null}" not in kind
        return f"{kind} | {self.null}" if is_union else kind

    def format_default(self, schema: object) -> str | None:
        """Return a parameter's default: "..." if it is too long, and None if it has none that its own schema allows."""
        about = as_mapping(schema)
        if "default" not in about or not fits(about["default"], about):
            return None
        shown = self.format_value(about["default"])
        return shown if shown is None or (len(shown) <= MAX_LITERAL and shown.isprintable()) else "..."

    def _format_plain_type(self, about: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
        options = as_sequence(about.get("anyOf")) or as_sequence(about.get("oneOf"))
        listed = [_list_values(about)] if _list_values(about) else [_list_values(as_mapping(each)) for each in options]
        if listed and all(listed):
            return self._format_values([value for values in listed for value in values])
        kinds = about.get("type")
        if depth > _DEPTH:
            return self.any
        if options and kinds is None:
            return self._join([self.format_type(option, root, depth + 1) for option in options[: _MEMBERS + 1]])
        listed_kinds = kinds[:8] if isinstance(kinds, list) else [kinds]
        return self._join([self._format_kind(kind, about, root, depth) for kind in listed_kinds])

    def _format_kind(self, kind: object, about: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
        if kind == "array":
            first = about.get("prefixItems", about.get("items"))
            items = first[: _MEMBERS + 1] if isinstance(first, list) else [first]
            item = self._join([self.format_type(each, root, depth + 1) for each in items])
            return self.scalars["array"] if item == self.any else self.format_list(item)
        if kind == "object":
            values = about.get("additionalProperties")
            if as_mapping(about.get("properties")) or not isinstance(values, Mapping):
                return self.scalars["object"]
            value = self.format_type(values, root, depth + 1)
            return self.scalars["object"] if value == self.any else self.format_map(value)
        return self.scalars.get(kind, self.any) if isinstance(kind, str) else self.any

    def _format_values(self, values: Sequence[Any]) -> str:
        literals = [self.format_value(value) for value in values[:MAX_VALUES]]
        shown = [each for each in literals if each is not None]
        text = self.format_literals(shown, is_cut=len(values) > MAX_VALUES)
        size = len(", ".join(shown)) + (len(", ...") if len(values) > MAX_VALUES else 0)
        if None not in literals and size <= MAX_LITERAL and text.isprintable():
            return text
        return self._join([self._name_type(value) for value in values[:100]])

    def _name_type(self, value: object) -> str:
        for kind, name in _NAMES.items():
            if isinstance(value, kind):
                return self.scalars[name]
        return self.null if value is None else self.any

    def _join(self, types: Sequence[str]) -> str:
        members = dict.fromkeys(types)
        return " | ".join(members) if 0 < len(members) <= _MEMBERS and self.any not in members else self.any


def _list_values(about: Mapping[str, Any]) -> list[Any]:
    """Return the only values that a schema allows, if it lists them."""
    return [about["const"]] if "const" in about else list(as_sequence(about.get("enum")))
