"""Inference of JSON Schemas from results, for tools that declare no output schema.

    schema = infer_schema([first, second])
    schema = widen_schema(schema, third)

A property is required if every object so far had it. Schemas are bounded, because results come from servers and are
not trusted: an object with too many keys becomes a mapping, a union of too many types becomes the empty schema.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

_MAX_DEPTH: Final = 8
_MAX_KEYS: Final = 100
"""Maximum number of properties. An object with more is a mapping with arbitrary keys."""
_MAX_ITEMS: Final = 200
"""Number of items of one array that are examined."""
_MAX_VALUES: Final = 1000
"""Number of values of one result that are examined."""
_MAX_TYPES: Final = 6
_MAX_KEY_CHARACTERS: Final = 200

Schema = dict[str, Any]


def infer_schema(values: Sequence[Any]) -> Schema:
    """Return a schema that accepts all values. Without values, it accepts anything."""
    schema: Schema | None = None
    for value in values:
        schema = _infer_value(value) if schema is None else widen_schema(schema, value)
    return {} if schema is None else schema


def widen_schema(schema: Mapping[str, Any], value: Any) -> Schema:
    """Return a schema that also accepts the value: the same schema if it already does."""
    return _merge(dict(schema), _infer_value(value), _MAX_DEPTH)


class _Budget:
    def __init__(self) -> None:
        self.left = _MAX_VALUES


def _infer_value(value: Any) -> Schema:
    return _infer_part(value, _MAX_DEPTH, _Budget())


def _infer_part(value: Any, depth: int, budget: _Budget) -> Schema:
    budget.left -= 1
    if depth == 0 or budget.left < 0:
        return {}
    if value is None:
        return {"type": "null"}
    if isinstance(value, bool):
        return {"type": "boolean"}
    if isinstance(value, int):
        return {"type": "integer"}
    if isinstance(value, float):
        return {"type": "number"}
    if isinstance(value, str):
        return {"type": "string"}
    if isinstance(value, list | tuple):
        items = _merge_all((_infer_part(item, depth - 1, budget) for item in value[:_MAX_ITEMS]), depth - 1)
        if len(value) > _MAX_ITEMS or budget.left < 0:
            items = _generalize_items(items)
        return {"type": "array"} if items is None else {"type": "array", "items": items}
    return _infer_object(value, depth, budget) if isinstance(value, Mapping) else {}


def _infer_object(value: Mapping[Any, Any], depth: int, budget: _Budget) -> Schema:
    entries = {key: entry for key, entry in value.items() if isinstance(key, str)}
    if len(entries) > _MAX_KEYS or any(len(key) > _MAX_KEY_CHARACTERS for key in entries):
        return {"type": "object"}
    properties = {key: _infer_part(entries[key], depth - 1, budget) for key in sorted(entries)}
    return {"type": "object", "properties": properties, "required": sorted(entries)}


def _generalize_items(items: Schema | None) -> Schema:
    """Return the schema of items that were not all examined: no property may be required."""
    return {} if items is None or items.get("type") in (None, "array", "object") else items


def _merge_all(schemas: Iterable[Schema], depth: int) -> Schema | None:
    merged: Schema | None = None
    for schema in schemas:
        merged = schema if merged is None else _merge(merged, schema, depth)
    return merged


def _merge(one: Schema, other: Schema, depth: int) -> Schema:
    if one == other:
        return one
    if not one or not other or depth <= 0:
        return {}
    kinds: dict[str, Schema] = {}
    for schema in (*_list_options(one), *_list_options(other)):
        kind = str(schema.get("type"))
        if kind == "integer" and "number" in kinds:
            continue
        if kind == "number":
            kinds.pop("integer", None)
        kinds[kind] = _merge_same_type(kinds[kind], schema, depth) if kind in kinds else schema
    if len(kinds) > _MAX_TYPES or "None" in kinds:
        return {}
    if len(kinds) == 1:
        return next(iter(kinds.values()))
    return {"anyOf": [kinds[kind] for kind in sorted(kinds, key=lambda kind: (kind == "null", kind))]}


def _list_options(schema: Schema) -> list[Schema]:
    options = schema.get("anyOf")
    return list(options) if isinstance(options, list) else [schema]


def _merge_same_type(one: Schema, other: Schema, depth: int) -> Schema:
    """Merge two schemas of the same type."""
    if one.get("type") == "array":
        items = [schema["items"] for schema in (one, other) if "items" in schema]
        merged = _merge_all(items, depth - 1)
        return {"type": "array"} if merged is None else {"type": "array", "items": merged}
    if one.get("type") == "object":
        return _merge_objects(one, other, depth)
    return one


def _merge_objects(one: Schema, other: Schema, depth: int) -> Schema:
    if "properties" not in one or "properties" not in other:
        return {"type": "object"}
    first, second = one["properties"], other["properties"]
    names = sorted({*first, *second})
    if len(names) > _MAX_KEYS:
        return {"type": "object"}
    properties = {
        name: _merge(first[name], second[name], depth - 1)
        if name in first and name in second
        else first.get(name, second.get(name))
        for name in names
    }
    required = sorted(set(one.get("required", ())) & set(other.get("required", ())))
    return {"type": "object", "properties": properties, "required": required}
