"""Reads of JSON Schemas that may say anything: wrong types, references that loop or lead nowhere, no end of depth."""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

_MAX_HOPS: Final = 16
_MAX_PARTS: Final = 100


def as_mapping(value: object) -> Mapping[str, Any]:
    """The value where it is a mapping, else an empty one; keys that are no text are left out."""
    return {key: value[key] for key in value if isinstance(key, str)} if isinstance(value, Mapping) else {}


def as_sequence(value: object) -> Sequence[Any]:
    """The value where it is a list, else an empty one."""
    return value if isinstance(value, list | tuple) else ()


def list_properties(schema: Mapping[str, Any]) -> dict[str, Any]:
    """An object's properties: those required, in the order in which they are, then the others by name."""
    found = as_mapping(schema.get("properties"))
    needed = list_required(schema)
    return {name: found.get(name, True) for name in needed} | {
        name: found[name] for name in sorted(found) if name not in needed and found[name] is not False
    }


def list_required(schema: Mapping[str, Any]) -> dict[str, None]:
    """Names of the properties that an object needs, in order."""
    return dict.fromkeys(name for name in as_sequence(schema.get("required")) if isinstance(name, str))


def list_required_arguments(schema: Mapping[str, Any]) -> dict[str, None]:
    """Names of the parameters that a call must give: those required without a default, which the broker fills in."""
    known = as_mapping(schema.get("properties"))
    return {name: None for name in list_required(schema) if "default" not in as_mapping(known.get(name))}


def resolve_reference(schema: Mapping[str, Any], root: Mapping[str, Any]) -> tuple[object, str | None]:
    """What the schema stands for, and the reference by which it was found; True where one leads nowhere.

    References into the same schema alone are followed: nothing is ever fetched.
    """
    found: object = schema
    pointer: str | None = None
    for _ in range(_MAX_HOPS):
        if not isinstance(found, Mapping) or not isinstance(reference := found.get("$ref"), str):
            return found, pointer
        pointer, found = reference, _follow_pointer(root, reference)
    return True, pointer


def merge_all_of(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema with the parts of its `allOf` in it, as far as they are objects; the nearer to the top counts more."""
    return _merge_parts(schema, root, [_MAX_PARTS])


def is_open(schema: Mapping[str, Any]) -> bool:
    """Whether an object takes properties that its schema does not name: where it says so, or says nothing at all.

    JSON Schema would have every object open that is not closed. Tools mean the parameters that they list.
    """
    if "patternProperties" in schema or "additionalProperties" in schema:
        return "patternProperties" in schema or schema["additionalProperties"] is not False
    return "properties" not in schema and not list_required(schema)


def _merge_parts(schema: Mapping[str, Any], root: Mapping[str, Any], left: list[int]) -> Mapping[str, Any]:
    """`left` is how many parts may still be looked at: references let a short schema have very many."""
    parts = as_sequence(schema.get("allOf"))
    if not parts:
        return schema
    found: dict[str, Any] = {}
    names: dict[str, Any] = {}
    needed: dict[str, None] = {}
    for part in (*parts[:_MAX_PARTS], {key: value for key, value in schema.items() if key != "allOf"}):
        left[0] -= 1
        if left[0] < 0:
            break
        each, _ = resolve_reference(as_mapping(part), root)
        each = _merge_parts(as_mapping(each), root, left)
        names |= as_mapping(each.get("properties"))
        needed |= list_required(each)
        found |= each
    return found | ({"properties": names, "required": list(needed)} if names else {})


def _follow_pointer(root: Mapping[str, Any], reference: str) -> object:
    if reference == "#":
        return root
    if not reference.startswith("#/"):
        return True
    found: object = root
    for step in reference[2:].split("/"):
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping) and key in found:
            found = found[key]
        elif isinstance(found, list) and key.isdecimal() and len(key) < 7 and int(key) < len(found):
            found = found[int(key)]
        else:
            return True
    return found
