"""The parameters that an input schema names, in its own properties and in those of its parts and alternatives."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from mcp_exec_tools.names import parameter_names
from mcp_exec_tools.schemas.reading import as_mapping, as_sequence, fits, list_required, resolve_reference
from mcp_exec_tools.schemas.rules import list_rules

_MAX_DEPTH: Final = 12
_MAX_NAMES: Final = 10_000
_MAX_PARTS: Final = 100
_MAX_SCHEMAS: Final = 1000
"""Schemas visited in all: each part may refer to the same others again."""
_MAX_VARIANTS: Final = 16

Schema = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Parameters of a tool, in the order of positional arguments."""

    schemas: Mapping[str, Any]
    """The schema of each parameter by its own name: the required ones first, in the order of `required`."""
    listed: Mapping[str, None]
    """Parameters that every call must have by the schema, those with a default included."""
    defaults: Mapping[str, Any]
    """Defaults of `listed` parameters, which the broker fills in. One that breaks its own schema is not one."""
    extra: Any
    """Schema of the parameters that the schema does not name but allows explicitly; None if it allows none."""
    is_open: bool
    """Whether the tool accepts other parameters, because its schema allows them or names none at all.

    By JSON Schema every object is open unless it is closed, but tools accept only the parameters that they list.
    """
    schema: Schema

    @cached_property
    def required(self) -> Mapping[str, None]:
        """Parameters that code must pass, in order."""
        return {name: None for name in self.listed if name not in self.defaults}

    @cached_property
    def code_names(self) -> Mapping[str, str]:
        """The name of each parameter as a keyword in code: `from_` for `from`."""
        return parameter_names(self.schemas)

    def choose_name(self, name: str) -> str:
        """Return a name that no parameter has in code, such as that of `**extra` in a signature."""
        taken = set(self.code_names.values())
        while name in taken:
            name += "_"
        return name

    @cached_property
    def rules(self) -> list[str]:
        """Rules of the schema for several parameters together, in sentences with the names in code."""
        return self.describe_rules(self.code_names)

    def describe_rules(self, names: Mapping[str, str]) -> list[str]:
        """Return the rules with other names."""
        return list_rules(self.schema, self.schema, names, listed=self.listed)


def read_parameters(schema: Schema) -> Parameters:
    """Return the parameters of a tool with this input schema."""
    collected = _Collected()
    is_closed, listed = _collect(schema, schema, collected, depth=0)
    named = {name: collected.choose(name) for name in collected.names}
    declared = {name: as_mapping(named.get(name)) for name in listed}
    defaults = {name: each["default"] for name, each in declared.items() if "default" in each}
    defaults = {name: value for name, value in defaults.items() if fits(value, declared[name])}
    needed = [name for name in listed if name not in defaults]
    return Parameters(
        schemas={name: named.get(name, True) for name in (*needed, *named, *listed)},
        listed=listed,
        defaults=defaults,
        extra=collected.extra,
        is_open=not is_closed or not (named or listed or collected.is_described),
        schema=schema,
    )


def flatten_object(schema: Schema, root: Schema) -> Schema:
    """Return an object's schema with the properties of its alternatives, without the alternatives."""
    collected = _Collected()
    _, listed = _collect(schema, root, collected, depth=0)
    properties = {name: collected.choose(name) for name in collected.names}
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "oneOf", "allOf", "if", "then", "else")}
    return {**rest, "properties": properties, "required": list(listed)}


@dataclass(kw_only=True)
class _Collected:
    names: dict[str, None] = field(default_factory=dict)
    own: dict[str, Any] = field(default_factory=dict)
    """Schemas that hold for every call."""
    variants: dict[str, list[Any]] = field(default_factory=dict)
    """Schemas of alternatives."""
    extra: Any = None
    is_described: bool = False
    """Whether the schema says which parameters there are, even if there are none."""
    left: int = _MAX_SCHEMAS

    def add(self, name: str, schema: Any, *, is_certain: bool) -> None:
        self.names[name] = None
        if is_certain:
            self.own[name] = schema
            return
        variants = self.variants.setdefault(name, [])
        if len(variants) < _MAX_VARIANTS and schema not in variants:
            variants.append(schema)

    def choose(self, name: str) -> Any:
        """Return the schema of a parameter: the one of every call, else the union of the alternatives' schemas."""
        own, variants = self.own.get(name, True), self.variants.get(name, [])
        if (isinstance(own, Mapping) and own) or not variants:
            return own
        return variants[0] if len(variants) == 1 else {"anyOf": variants}


def _collect(
    schema: Any, root: Schema, collected: _Collected, *, depth: int, is_certain: bool = True
) -> tuple[bool, dict[str, None]]:
    """Add the parameters that a schema names. Return whether it accepts no others, and those that it requires."""
    collected.left -= 1
    is_known = isinstance(schema, Mapping) and depth <= _MAX_DEPTH and len(collected.names) <= _MAX_NAMES
    if not is_known or collected.left < 0:
        return False, {}
    is_closed, required = True, dict[str, None]()
    for part in _iterate_certain(schema, root):
        part_is_closed, needed = _collect(part, root, collected, depth=depth + 1, is_certain=is_certain)
        is_closed, required = is_closed and part_is_closed, required | needed
    is_closed = _add_own(schema, collected, is_certain=is_certain) and is_closed
    required |= list_required(schema)
    for group in _iterate_alternatives(schema):
        found = [_collect(part, root, collected, depth=depth + 1, is_certain=False) for part in group]
        is_closed = is_closed and all(part_is_closed for part_is_closed, _ in found)
        first, *others = (needed for _, needed in found)
        required |= {name: None for name in first if all(name in needed for needed in others)}
        for needed in (first, *others):
            collected.names |= {name: None for name in needed if len(collected.names) <= _MAX_NAMES}
    for keyword in ("dependentSchemas", "dependencies"):
        for part in list(as_mapping(schema.get(keyword)).values())[:_MAX_PARTS]:
            _collect(part, root, collected, depth=depth + 1, is_certain=False)
    return is_closed, required


def _add_own(schema: Schema, collected: _Collected, *, is_certain: bool) -> bool:
    """Add the schema's own properties, and return whether it allows no others explicitly."""
    additional, patterns = schema.get("additionalProperties"), schema.get("patternProperties")
    collected.is_described |= isinstance(schema.get("properties"), Mapping) or additional is False
    required = list_required(schema)
    for name, each in as_mapping(schema.get("properties")).items():
        if (each is not False or name in required) and len(collected.names) <= _MAX_NAMES:
            collected.add(name, each, is_certain=is_certain)
    # MCP servers seldom set additionalProperties: an unnamed parameter counts as a mistake unless it is allowed
    if additional in (None, False) and not isinstance(patterns, Mapping):
        return True
    if collected.extra is None:
        kinds = [each for each in (*as_mapping(patterns).values(), additional) if each not in (None, False)]
        collected.extra = kinds[0] if len(kinds) == 1 else {"anyOf": kinds[:_MAX_VARIANTS]} if kinds else True
    return False


def _iterate_certain(schema: Schema, root: Schema) -> Iterator[Any]:
    """Yield the schemas that hold together with this one."""
    yield from as_sequence(schema.get("allOf"))[:_MAX_PARTS]
    if isinstance(schema.get("$ref"), str):
        target, _ = resolve_reference(schema, root)
        if target is not root:
            yield target


def _iterate_alternatives(schema: Schema) -> Iterator[list[Any]]:
    """Yield the groups of alternative schemas."""
    for keyword in ("anyOf", "oneOf"):
        if parts := as_sequence(schema.get(keyword))[:_MAX_PARTS]:
            yield list(parts)
    if "if" in schema:
        # what a condition says of a parameter is no requirement of the call
        yield [{"properties": {name: {} for name in as_mapping(as_mapping(schema["if"]).get("properties"))}}, {}]
        yield [schema.get("then", {}), schema.get("else", {})]
