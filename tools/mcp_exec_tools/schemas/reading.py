"""Reader of untrusted JSON Schemas: wrong types, circular or dangling references, unlimited depth."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

_MAX_HOPS: Final = 16
_MAX_PARTS: Final = 100
_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
    "array": (list, tuple),
    "object": Mapping,
}


def as_mapping(value: object) -> Mapping[str, Any]:
    """Return the string keys of a mapping and their values. Any other value gives an empty mapping."""
    return {key: value[key] for key in value if isinstance(key, str)} if isinstance(value, Mapping) else {}


def as_sequence(value: object) -> Sequence[Any]:
    """Return the value if it is a list or tuple, else an empty list."""
    return value if isinstance(value, list | tuple) else ()


def list_properties(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object's properties: the required ones in their order, then the others by name."""
    properties = as_mapping(schema.get("properties"))
    required = list_required(schema)
    return {name: properties.get(name, True) for name in required} | {
        name: properties[name] for name in sorted(properties) if name not in required and properties[name] is not False
    }


def list_required(schema: Mapping[str, Any]) -> dict[str, None]:
    """Return the names of an object's required properties, in order."""
    return dict.fromkeys(name for name in as_sequence(schema.get("required")) if isinstance(name, str))


def is_nullable(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema accepts null by OpenAPI's keyword, whatever else it says. OpenAPI 2 has `x-nullable`."""
    return schema.get("nullable") is True or schema.get("x-nullable") is True


def fits(value: object, schema: object) -> bool:
    """Return whether a default is JSON and agrees with the `type`, `enum` and `const` of its own schema."""
    about = as_mapping(schema)
    if not _is_json(value):
        return False
    if value is None and is_nullable(about):
        return True
    if "const" in about and not _equals(value, about["const"]):
        return False
    if isinstance(values := about.get("enum"), list) and not any(_equals(value, each) for each in values):
        return False
    kinds = about.get("type")
    known = [kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if isinstance(kind, str)]
    return not known or any(_has_type(value, kind) for kind in known)


def resolve_reference(schema: Mapping[str, Any], root: Mapping[str, Any]) -> tuple[object, str | None]:
    """Resolve the schema's reference, and return the target and the last reference followed.

    The target of a dangling reference is True. Only references into the same schema are followed: nothing is fetched.
    """
    target: object = schema
    pointer: str | None = None
    for _ in range(_MAX_HOPS):
        if not isinstance(target, Mapping) or not isinstance(reference := target.get("$ref"), str):
            return target, pointer
        pointer, target = reference, _follow_pointer(root, reference)
    return True, pointer


def has_dangling_reference(schema: Mapping[str, Any]) -> bool:
    """Return whether a reference of the schema leads out of it or to nothing."""
    waiting: list[Any] = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Mapping):
            if isinstance(part.get("$ref"), str) and not isinstance(resolve_reference(part, schema)[0], Mapping):
                return True
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
    return False


def merge_all_of(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Merge the object schemas of `allOf` into the schema. Fields nearer to the top have precedence."""
    return _merge_parts(schema, root, [_MAX_PARTS])


def _merge_parts(schema: Mapping[str, Any], root: Mapping[str, Any], budget: list[int]) -> Mapping[str, Any]:
    """Merge the parts of `allOf`. `budget` limits their number, because references let a short schema have many."""
    parts = as_sequence(schema.get("allOf"))
    if not parts:
        return schema
    merged: dict[str, Any] = {}
    properties: dict[str, Any] = {}
    required: dict[str, None] = {}
    for part in (*parts[:_MAX_PARTS], {key: value for key, value in schema.items() if key != "allOf"}):
        budget[0] -= 1
        if budget[0] < 0:
            break
        resolved, _ = resolve_reference(as_mapping(part), root)
        resolved = _merge_parts(as_mapping(resolved), root, budget)
        properties |= as_mapping(resolved.get("properties"))
        required |= list_required(resolved)
        merged |= resolved
    return merged | ({"properties": properties, "required": list(required)} if properties else {})


def _follow_pointer(root: Mapping[str, Any], reference: str) -> object:
    if reference == "#":
        return root
    if not reference.startswith("#/"):
        return True
    target: object = root
    for step in reference[2:].split("/"):
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(target, Mapping) and key in target:
            target = target[key]
        elif isinstance(target, list) and key.isdecimal() and len(key) < 7 and int(key) < len(target):
            target = target[int(key)]
        else:
            return True
    return target


def _is_json(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _equals(one: object, other: object) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _has_type(value: object, kind: str) -> bool:
    if isinstance(value, bool):
        return kind not in _TYPES or kind == "boolean"
    if isinstance(value, float) and value.is_integer() and kind == "integer":
        return True
    return isinstance(value, _TYPES.get(kind, object))
