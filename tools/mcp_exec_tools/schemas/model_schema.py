"""The form of a tool that the interfaces of models accept: a plain object at the root, and short texts.

Anthropic's and OpenAI's refuse a whole request if the schema of one tool has `anyOf`, `oneOf`, `allOf`, `not` or
`enum` at its root, a dangling reference, or a property with other characters in its name. What a schema cannot say
there is said in the description.
"""

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mcp_exec_tools.names import normalize
from mcp_exec_tools.schemas.parameters import Parameters, read_parameters
from mcp_exec_tools.schemas.reading import as_mapping, as_sequence, fits, is_nullable, list_required, resolve_reference

_MAX_NODES: Final = 4000
_MAX_VALUE: Final = 2000
_MAX_VALUES: Final = 500
_MAX_PATTERN: Final = 300
_TYPES: Final = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})
_SCHEMAS: Final = ("not", "if", "then", "else", "contains", "propertyNames")
_SCHEMAS_OR_FALSE: Final = ("items", "additionalProperties", "unevaluatedItems", "unevaluatedProperties")
_LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_NUMBERS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_COUNTS: Final = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_FLAGS: Final = ("uniqueItems", "deprecated", "readOnly", "writeOnly")
_WORDS: Final = ("format", "contentEncoding", "contentMediaType")
_OTHER_LETTER: Final = re.compile(r"[^a-zA-Z0-9_.-]")

Object = dict[str, Any]


class Sanitizer:
    """Converter of one tool's schemas. References lead to the definitions, which it collects."""

    def __init__(self, root: Mapping[str, Any], *, rename: Callable[[str], str], text: int, depth: int) -> None:
        """Create a converter.

        Args:
            root: the schema that references lead into.
            rename: returns the name that the model sees of a property.
            text: most characters of a description.
            depth: most levels; what is deeper is left open.
        """
        self._definitions: Object = {}
        self._root, self._rename, self._text, self._depth = root, rename, text, depth
        self._pointers: dict[str, str] = {}
        self._waiting: list[tuple[str, Any]] = []
        self._left = _MAX_NODES

    def convert(self, schema: Any, depth: int = 1) -> Object:
        """Return the valid form of a schema."""
        self._left -= 1
        if schema is False:
            return {"not": {}}
        if not isinstance(schema, Mapping) or self._left < 0 or depth > self._depth:
            return {}
        about = as_mapping(schema)
        found = self._convert_reference(about) | self._convert_parts(about, depth)
        found |= self._convert_types(about) | _convert_bounds(about) | self._convert_texts(about)
        return _accept_null(found) if is_nullable(about) else found

    def convert_definitions(self) -> Object:
        """Return the definitions that the converted schemas refer to."""
        while self._waiting:
            name, target = self._waiting.pop()
            self._definitions[name] = self.convert(target, 2)
        return self._definitions

    def clean(self, text: str) -> str:
        """Return a text without control characters, and no longer than a description may be."""
        cleaned = clean_text(text[: 4 * self._text])
        return cleaned if len(cleaned) <= self._text else cleaned[: max(self._text - 4, 0)].rstrip() + " ..."

    def convert_properties(self, properties: Mapping[str, Any], depth: int) -> Object:
        """Return the properties by the names that the model sees. The description has a name that was changed."""
        found: Object = {}
        for name, each in properties.items():
            if each is False:
                continue
            shown = self._rename(name)
            found[shown] = self.convert(each, depth)
            if shown != name and self._text:
                about = found[shown].get("description", "")
                found[shown]["description"] = self.clean(f'"{name[:100]}"{". " if about else ""}{about}')
        return found

    def _convert_reference(self, schema: Mapping[str, Any]) -> Object:
        if not isinstance(schema.get("$ref"), str):
            return {}
        target, pointer = resolve_reference(schema, self._root)
        if not isinstance(target, Mapping) or pointer is None:
            return {}
        if pointer not in self._pointers:
            name = self._name_definition(pointer)
            self._pointers[pointer] = name
            self._definitions[name] = {}
            self._waiting.append((name, target))
        return {"$ref": f"#/$defs/{self._pointers[pointer]}"}

    def _name_definition(self, pointer: str) -> str:
        base = _OTHER_LETTER.sub("_", pointer.rpartition("/")[2].removeprefix("#"))[:50] or "Whole"
        name, number = base, 2
        while name in self._definitions:
            name, number = f"{base}_{number}", number + 1
        return name

    def _convert_parts(self, schema: Mapping[str, Any], depth: int) -> Object:
        found: Object = {key: self.convert(schema[key], depth + 1) for key in _SCHEMAS if key in schema}
        schema = _convert_tuples(schema)
        for key in _SCHEMAS_OR_FALSE:
            if key in schema and (isinstance(schema[key], bool | Mapping)):
                found[key] = schema[key] if isinstance(schema[key], bool) else self.convert(schema[key], depth + 1)
        for key in _LISTS:
            if parts := as_sequence(schema.get(key)):
                found[key] = [self.convert(part, depth + 1) for part in parts[:_MAX_VALUES]]
        if isinstance(schema.get("properties"), Mapping):
            found["properties"] = self.convert_properties(as_mapping(schema["properties"]), depth + 1)
        if isinstance(schema.get("patternProperties"), Mapping):
            patterns = as_mapping(schema["patternProperties"])
            found["patternProperties"] = {
                pattern: self.convert(part, depth + 1) for pattern, part in patterns.items() if is_pattern(pattern)
            }
        if isinstance(schema.get("required"), list) and depth <= self._depth:
            found["required"] = [self._rename(name) for name in list_required(schema)]
        dependent = as_mapping(schema.get("dependentRequired"))
        if dependent:
            found["dependentRequired"] = {
                self._rename(name): list(dict.fromkeys(self._rename(each) for each in names if isinstance(each, str)))
                for name, names in dependent.items()
                if isinstance(names, list)
            }
        return found

    def _convert_types(self, schema: Mapping[str, Any]) -> Object:
        found: Object = {}
        kinds = schema.get("type")
        known = list(dict.fromkeys(kind for kind in as_sequence(kinds) if isinstance(kind, str) and kind in _TYPES))
        if isinstance(kinds, str) and kinds in _TYPES:
            found["type"] = kinds
        elif known:
            found["type"] = known
        if "const" in schema and _is_small(schema["const"]):
            found["const"] = schema["const"]
        values = [value for value in as_sequence(schema.get("enum")) if _is_small(value)]
        if values and len(values) == len(schema["enum"]) <= _MAX_VALUES:
            found["enum"] = _list_unique(values)
        if "default" in schema and _is_small(schema["default"]) and fits(schema["default"], schema):
            found["default"] = schema["default"]
        examples = [value for value in as_sequence(schema.get("examples"))[:10] if _is_small(value)]
        return found | ({"examples": examples} if examples and self._text > _MAX_PATTERN else {})

    def _convert_texts(self, schema: Mapping[str, Any]) -> Object:
        if not self._text:
            return {}
        texts = {key: schema[key] for key in ("title", "description") if isinstance(schema.get(key), str)}
        found = {key: cleaned for key, text in texts.items() if (cleaned := self.clean(text))}
        lost = [f"Pattern: {schema['pattern']}"] if _has_lost_pattern(schema) else []
        values = as_sequence(schema.get("enum"))
        if len(values) > _MAX_VALUES:
            lost.append(f"One of {len(values)} values, such as {', '.join(map(str, values[:5]))}")
        if lost:
            found["description"] = self.clean(". ".join([found.get("description", "").rstrip("."), *lost]).lstrip(". "))
        return found


def _accept_null(found: Object) -> Object:
    """Return a schema that accepts null, too."""
    if found.keys() & {"$ref", "const", "anyOf", "oneOf", "allOf", "not", "if"}:
        texts: Object = {name: found[name] for name in ("title", "description", "default") if name in found}
        core = {name: value for name, value in found.items() if name not in texts}
        return {"anyOf": [core, {"type": "null"}], **texts}
    accepting = dict(found)
    if "type" in found:
        kinds = found["type"] if isinstance(found["type"], list) else [found["type"]]
        accepting["type"] = list(dict.fromkeys([*kinds, "null"]))
    if "enum" in found and None not in found["enum"]:
        accepting["enum"] = [*found["enum"], None]
    return accepting


def clean_text(text: str) -> str:
    """Return a text whose characters are all visible, or a line break, a tab or a joiner of letters."""
    return "".join(each if each.isprintable() or each in "\n\t\u200c\u200d" else " " for each in text).strip()


def is_pattern(pattern: object) -> bool:
    """Return whether a pattern is valid and short."""
    if not isinstance(pattern, str) or len(pattern) > _MAX_PATTERN or not _is_text(pattern):
        return False
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


def _has_lost_pattern(schema: Mapping[str, Any]) -> bool:
    return isinstance(schema.get("pattern"), str) and not is_pattern(schema["pattern"])


def _convert_bounds(schema: Mapping[str, Any]) -> Object:
    found: Object = {key: schema[key] for key in _NUMBERS if _is_number(schema.get(key))}
    for bound, limit in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if schema.get(limit) is True and bound in found:  # the form of draft 4
            found[limit] = found.pop(bound)
    if _is_number(schema.get("multipleOf")) and schema["multipleOf"] > 0:
        found["multipleOf"] = schema["multipleOf"]
    found |= {key: schema[key] for key in _COUNTS if _is_count(schema.get(key))}
    found |= {key: schema[key] for key in _FLAGS if isinstance(schema.get(key), bool)}
    found |= {key: schema[key][:100] for key in _WORDS if isinstance(schema.get(key), str) and _is_text(schema[key])}
    return found | ({"pattern": schema["pattern"]} if is_pattern(schema.get("pattern")) else {})


def _convert_tuples(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema whose tuples have the form of draft 2020-12."""
    if not isinstance(schema.get("items"), list):
        return schema
    others = {"items": schema["additionalItems"]} if "additionalItems" in schema else {}
    return {**{key: value for key, value in schema.items() if key != "items"}, "prefixItems": schema["items"], **others}


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) if isinstance(value, float) else value.bit_length() <= 1000


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _is_text(text: str) -> bool:
    """Return whether a text has no half of a surrogate pair, which no API accepts."""
    return text.isascii() or not any("\ud800" <= each <= "\udfff" for each in text)


def _is_small(value: object) -> bool:
    """Return whether a value is JSON that every API accepts, and short."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return len(text) <= _MAX_VALUE and _is_text(text)


def _list_unique(values: list[Any]) -> list[Any]:
    return list({json.dumps(value, sort_keys=True): value for value in values}.values())


MAX_DESCRIPTION: Final = 2000
"""Bytes of a description."""
MAX_BYTES: Final = 32 * 1024
"""Bytes of a schema."""
_MAX_NOTES: Final = 900
_MAX_PROPERTIES: Final = 200
_MAX_NAME: Final = 64
_MAX_RESTORED: Final = 64
_LEVELS: Final = ((2000, 24), (200, 8), (100, 3), (0, 1))
"""Characters of descriptions and depth of a schema: the first that makes it fit."""
_NAME: Final = re.compile(rf"[a-zA-Z0-9_.-]{{1,{_MAX_NAME}}}")
_OTHER_LETTERS: Final = re.compile(r"[^a-zA-Z0-9_.-]+")
_DIGEST: Final = 6


@dataclass(frozen=True, kw_only=True)
class ModelSchema:
    """Schema and description of a tool for a model."""

    schema: Object
    description: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    """The tool's own name of each parameter that has another one here."""
    nested: Mapping[str, str] = field(default_factory=dict)
    """The same for the properties of parameters."""

    def restore(self, arguments: Mapping[str, Any]) -> Object:
        """Return the arguments of a model's call by the tool's own names."""
        restored = {self.parameters.get(name, name): value for name, value in arguments.items()}
        if self.nested:
            restored = {name: self._restore(value, 1) for name, value in restored.items()}
        return restored

    def _restore(self, value: Any, depth: int) -> Any:
        if depth > _MAX_RESTORED:
            return value
        if isinstance(value, Mapping):
            return {self.nested.get(name, name): self._restore(each, depth + 1) for name, each in value.items()}
        return [self._restore(each, depth + 1) for each in value] if isinstance(value, list) else value


def build_model_schema(schema: Mapping[str, Any], description: str = "") -> ModelSchema:
    """Return a tool's schema and description as models get them.

    A schema that is accepted already keeps its parts. The result of a second call is the same.
    """
    parameters = read_parameters(schema)
    names = _name_parameters(parameters)
    shown: Object = {}
    nested: dict[str, str] = {}
    for text, depth in _LEVELS:
        nested = {}
        shown = _build_object(parameters, names, nested, text=text, depth=depth)
        if len(json.dumps(shown)) <= MAX_BYTES:
            break
    notes = _list_notes(parameters, names)
    if (text, depth) != _LEVELS[0]:
        notes.append("The schema of this tool is shortened; the tool checks the rest")
    return ModelSchema(
        schema=shown,
        description=_join_description(description or str(as_mapping(schema).get("description") or ""), notes),
        parameters={shown_name: name for name, shown_name in names.items() if name != shown_name},
        nested=nested,
    )


def _name_parameters(parameters: Parameters) -> dict[str, str]:
    """Return the name of each parameter in the model's schema, by its own name."""
    names = {name: name for name in parameters.schemas if _NAME.fullmatch(name)}
    taken = set(names)
    for position, name in enumerate(parameters.schemas, 1):
        if name in names:
            continue
        shown = _OTHER_LETTERS.sub("_", normalize(name[:200])).strip("_")[: _MAX_NAME - 7] or f"parameter_{position}"
        if shown in taken:
            shown = f"{shown}_{_digest(name)}"
        names[name] = shown
        taken.add(shown)
    return {name: names[name] for name in parameters.schemas}


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:_DIGEST]


def _build_object(
    parameters: Parameters, names: Mapping[str, str], nested: dict[str, str], *, text: int, depth: int
) -> Object:
    def rename(name: str) -> str:
        if _NAME.fullmatch(name):
            return name
        plain = _OTHER_LETTERS.sub("_", normalize(name[:200])).strip("_")[: _MAX_NAME - 2 * _DIGEST]
        shown = f"{plain or 'property'}_{_digest(name)}"
        nested[shown] = name
        return shown

    sanitizer = Sanitizer(parameters.schema, rename=rename, text=text, depth=depth)
    listed = list(parameters.schemas)[:_MAX_PROPERTIES]
    properties: Object = {}
    for name in listed:
        properties |= _convert_parameter(name, names[name], parameters.schemas[name], sanitizer)
    shown: Object = {"type": "object", "properties": properties}
    if required := [names[name] for name in parameters.listed if names[name] in properties]:
        shown["required"] = required
    additional = parameters.schema.get("additionalProperties")
    if len(parameters.schemas) <= _MAX_PROPERTIES and not parameters.is_open and additional is False:
        shown["additionalProperties"] = False
    elif parameters.extra is not None:
        shown["additionalProperties"] = parameters.extra is True or sanitizer.convert(parameters.extra) or True
    if isinstance(title := parameters.schema.get("title"), str) and text:
        shown["title"] = sanitizer.clean(title)
    definitions = sanitizer.convert_definitions()
    return shown | ({"$defs": definitions} if definitions else {})


def _convert_parameter(name: str, shown: str, schema: Any, sanitizer: Sanitizer) -> Object:
    converted = sanitizer.convert(schema)
    if name != shown:
        about = converted.get("description", "")
        converted["description"] = sanitizer.clean(f'"{name[:100]}"{". " if about else ""}{about}') or clean_text(name)
    return {shown: converted}


def _list_notes(parameters: Parameters, names: Mapping[str, str]) -> list[str]:
    notes = [f"{rule[0].upper()}{rule[1:]}" for rule in parameters.describe_rules(names)]
    patterns = list(as_mapping(parameters.schema.get("patternProperties")))
    if patterns:
        notes.append(f"Other parameters have names like {' or '.join(patterns[:3])[:200]}")
    left_out = list(names.values())[_MAX_PROPERTIES:]
    if left_out:
        notes.append(f"There are {len(left_out)} more parameters, such as {', '.join(left_out[:5])}")
    return notes


def _join_description(description: str, notes: list[str]) -> str:
    """Return the description with the notes behind it, which a long description leaves room for."""
    end = _cut(clean_text(". ".join(notes)), _MAX_NOTES)
    end = f"{end}." if end and not end.endswith(".") else end
    start = clean_text(description[: 4 * MAX_DESCRIPTION])
    if end and start.endswith(end):
        return start
    room = MAX_DESCRIPTION - len(end.encode()) - 2 * bool(end)
    return "\n\n".join(filter(None, [_cut(start, room), end]))


def _cut(text: str, limit: int) -> str:
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return data.decode()
    return data[: limit - 4].decode("utf-8", "ignore").rstrip() + " ..."
