"""JSON Schemas of results that were seen, for tools that declare none. Bounded: results come from servers.

    schema = infer([first, second])
    schema = widen(schema, third)

A property is required where every object so far had it. What grows too wide is left open: an object with very many
keys is a mapping, a union of very many kinds is anything.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

_DEPTH: Final = 8
_KEYS: Final = 100
"""Properties of one object, beyond which it is taken for a mapping with keys of any kind."""
_ITEMS: Final = 200
"""Items of one array that are looked at."""
_NODES: Final = 1000
"""Values of one result that are looked at."""
_KINDS: Final = 6
_KEY: Final = 200

Schema = dict[str, Any]


def infer(values: Sequence[Any]) -> Schema:
    """A schema that all of the values are valid by; without a value, that of anything."""
    found: Schema | None = None
    for value in values:
        found = _of(value) if found is None else widen(found, value)
    return {} if found is None else found


def widen(schema: Mapping[str, Any], value: Any) -> Schema:
    """The schema of what it was made from before and of the value. It is the same schema where that fits already."""
    return _joined(dict(schema), _of(value), _DEPTH)


class _Budget:
    def __init__(self) -> None:
        self.left = _NODES


def _of(value: Any) -> Schema:
    return _schema(value, _DEPTH, _Budget())


def _schema(value: Any, depth: int, budget: _Budget) -> Schema:
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
        items = _all((_schema(item, depth - 1, budget) for item in value[:_ITEMS]), depth - 1)
        if len(value) > _ITEMS or budget.left < 0:
            items = _open(items)
        return {"type": "array"} if items is None else {"type": "array", "items": items}
    return _object(value, depth, budget) if isinstance(value, Mapping) else {}


def _object(value: Mapping[Any, Any], depth: int, budget: _Budget) -> Schema:
    entries = {key: each for key, each in value.items() if isinstance(key, str)}
    if len(entries) > _KEYS or any(len(key) > _KEY for key in entries):
        return {"type": "object"}
    properties = {key: _schema(entries[key], depth - 1, budget) for key in sorted(entries)}
    return {"type": "object", "properties": properties, "required": sorted(entries)}


def _open(items: Schema | None) -> Schema:
    """What the items are like, where not all of them were looked at: nothing may be said to be always there."""
    return {} if items is None or items.get("type") in (None, "array", "object") else items


def _all(schemas: Iterable[Schema], depth: int) -> Schema | None:
    found: Schema | None = None
    for schema in schemas:
        found = schema if found is None else _joined(found, schema, depth)
    return found


def _joined(one: Schema, other: Schema, depth: int) -> Schema:
    if one == other:
        return one
    if not one or not other or depth <= 0:
        return {}
    kinds: dict[str, Schema] = {}
    for schema in (*_kinds(one), *_kinds(other)):
        kind = str(schema.get("type"))
        if kind == "integer" and "number" in kinds:
            continue
        if kind == "number":
            kinds.pop("integer", None)
        kinds[kind] = _alike(kinds[kind], schema, depth) if kind in kinds else schema
    if len(kinds) > _KINDS or "None" in kinds:
        return {}
    if len(kinds) == 1:
        return next(iter(kinds.values()))
    return {"anyOf": [kinds[kind] for kind in sorted(kinds, key=lambda kind: (kind == "null", kind))]}


def _kinds(schema: Schema) -> list[Schema]:
    options = schema.get("anyOf")
    return list(options) if isinstance(options, list) else [schema]


def _alike(one: Schema, other: Schema, depth: int) -> Schema:
    """Two schemas of one type."""
    if one.get("type") == "array":
        items = [schema["items"] for schema in (one, other) if "items" in schema]
        joined = _all(items, depth - 1)
        return {"type": "array"} if joined is None else {"type": "array", "items": joined}
    if one.get("type") == "object":
        return _objects(one, other, depth)
    return one


def _objects(one: Schema, other: Schema, depth: int) -> Schema:
    if "properties" not in one or "properties" not in other:
        return {"type": "object"}
    first, second = one["properties"], other["properties"]
    names = sorted({*first, *second})
    if len(names) > _KEYS:
        return {"type": "object"}
    properties = {
        name: _joined(first[name], second[name], depth - 1)
        if name in first and name in second
        else first.get(name, second.get(name))
        for name in names
    }
    required = sorted(set(one.get("required", ())) & set(other.get("required", ())))
    return {"type": "object", "properties": properties, "required": required}
