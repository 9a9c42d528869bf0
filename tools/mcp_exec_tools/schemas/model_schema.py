"""The form of a tool that the interfaces of models accept: a plain object at the root, and short texts.

Anthropic's and OpenAI's refuse a whole request if the schema of one tool has `anyOf`, `oneOf`, `allOf`, `not` or
`enum` at its root, a dangling reference, or a property with other characters in its name. What a schema cannot say
there is said in the description.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mcp_exec_tools.names import normalize
from mcp_exec_tools.schemas.parameters import Parameters, read_parameters
from mcp_exec_tools.schemas.reading import as_mapping
from mcp_exec_tools.schemas.sanitizing import Sanitizer, clean_text

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

Object = dict[str, Any]


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
