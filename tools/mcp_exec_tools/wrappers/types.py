"""Types of JSON Schemas, in no language: the definitions that a tool's arguments and result need."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mcp_exec_tools.names import normalize, words
from mcp_exec_tools.schemas.parameters import Parameters, flatten_object
from mcp_exec_tools.schemas.reading import (
    as_mapping,
    as_sequence,
    is_nullable,
    list_properties,
    list_required,
    merge_all_of,
    resolve_reference,
)

_DEPTH, _TYPES, _FIELDS, _VALUES, _NAME, _INLINE = 12, 200, 500, 100, 50, 60
_SCALARS: Final = frozenset({"string", "integer", "number", "boolean"})


@dataclass(frozen=True)
class Scalar:
    """Type of JSON by its name there, or `any`."""

    kind: str


@dataclass(frozen=True)
class Literals:
    """Union of values: the kind and the value of each. `True` and `1` differ by their kinds."""

    values: tuple[tuple[str, str | int | bool], ...]


@dataclass(frozen=True)
class ListOf:
    """List of items of a type."""

    item: "Kind"


@dataclass(frozen=True)
class MapOf:
    """Object whose values have a type, by any text."""

    value: "Kind"


@dataclass(frozen=True)
class Reference:
    """Definition by its name. One that is `later` follows the definition that refers to it, or is the same."""

    name: str
    is_later: bool = False


@dataclass(frozen=True)
class UnionOf:
    """Union. No member is a union."""

    members: tuple["Kind", ...]


Kind = Scalar | Literals | ListOf | MapOf | Reference | UnionOf

ANY: Final = Scalar("any")
NULL: Final = Scalar("null")


def make_union(members: Sequence[Kind], *, most: int = 16) -> Kind:
    """Return the union of the members, without duplicates, with one list of literals, and with null last.

    A union of more than `most` members is `any`.
    """
    kinds: dict[Kind, None] = {}
    literals: dict[tuple[str, str | int | bool], None] = {}
    for member in members:
        for option in member.members if isinstance(member, UnionOf) else (member,):
            if isinstance(option, Literals):
                literals |= dict.fromkeys(option.values)
            kinds[Literals(()) if isinstance(option, Literals) else option] = None
    if ANY in kinds or not kinds or len(kinds) > most:
        return ANY
    is_optional = NULL in kinds
    kinds.pop(NULL, None)
    options = [Literals(tuple(literals)) if isinstance(option, Literals) else option for option in kinds]
    options += [NULL] if is_optional else []
    return options[0] if len(options) == 1 else UnionOf(tuple(options))


def pascal_case(name: str) -> str:
    """Return the name in PascalCase, as a type's name: `create_issue` is `CreateIssue`."""
    text = "".join(word.capitalize() for word in words(name)) or "Tool"
    text = normalize(text)
    return text if text.isidentifier() else f"_{text}"


@dataclass(frozen=True, kw_only=True)
class Field:
    """Property of an object."""

    key: str
    kind: Kind
    is_required: bool
    schema: object
    """The property's own schema, for what a comment says of it."""


@dataclass(frozen=True, kw_only=True)
class TypeDefinition:
    """Named type: an alias if `alias` is set, else an object."""

    name: str
    alias: Kind | None = None
    fields: tuple[Field, ...] = ()
    is_open: bool = False
    """Whether the object's schema allows other properties explicitly."""
    doc: str = ""


class TypeBuilder:
    """Builder of one module's definitions, ordered so that each follows those that it needs."""

    def __init__(self, *names: str, reserved: Collection[str], measure: Callable[[Kind], int]) -> None:
        """Create a builder.

        Args:
            names: the names of the definitions that are asked for.
            reserved: names that no definition may have.
            measure: returns the number of characters of a type in the language. A long one gets a definition.
        """
        self.definitions: list[TypeDefinition] = []
        self.names = {*names, *reserved}
        """Names of the definitions, and the reserved ones."""
        self._measure = measure
        self._root: Mapping[str, Any] = {}
        self._title = ""
        self._resolved: dict[str, Kind] = {}
        self._unfinished: dict[str, str | None] = {}

    def define_arguments(self, name: str, parameters: Parameters, *, doc: str) -> None:
        """Define a name that was given to the constructor as the type of all arguments.

        Without parameters it accepts none unless the schema allows others. A parameter with a default is optional.
        """
        self._begin(name, parameters.schema)
        if len(parameters.schemas) > _FIELDS or (parameters.is_open and not parameters.schemas):
            self.definitions.append(TypeDefinition(name=name, alias=MapOf(ANY)))
            return
        fields = self._build_fields(parameters.schemas, parameters.required, name, 0)
        self.definitions.append(TypeDefinition(name=name, fields=fields, is_open=parameters.is_open, doc=doc))

    def define(self, name: str, schema: object, *, doc: str) -> None:
        """Define a name that was given to the constructor as the schema's type."""
        self._begin(name, schema)
        kind = self._resolve_type(schema, name, 0, root=True)
        if kind != Reference(name):
            self.definitions.append(TypeDefinition(name=name, alias=kind, doc=doc))
        else:
            self.definitions = [
                TypeDefinition(name=name, fields=each.fields, is_open=each.is_open, doc=doc)
                if each.name == name
                else each
                for each in self.definitions
            ]

    def _begin(self, name: str, schema: object) -> None:
        self._root, self._title, self._resolved, self._unfinished = as_mapping(schema), name, {}, {}

    def _resolve_type(self, schema: object, name: str, depth: int, *, root: bool = False) -> Kind:
        if not isinstance(schema, Mapping) or depth > _DEPTH or len(self.definitions) >= _TYPES:
            return ANY
        resolved, pointer = resolve_reference(schema, self._root)
        if not isinstance(resolved, Mapping):
            return ANY
        if pointer is None:
            kind = self._build(resolved, name, depth, None)
        elif pointer in self._resolved:
            kind = self._resolved[pointer]
        elif pointer in self._unfinished:
            unfinished = self._unfinished[pointer]
            return ANY if unfinished is None else Reference(unfinished, is_later=True)
        else:
            self._unfinished[pointer] = None
            hint = name if root else self._title + pascal_case(pointer.rpartition("/")[2])
            kind = self._build(resolved, hint, depth, pointer)
            self._resolved[pointer] = kind
        if is_nullable(schema) or is_nullable(resolved):
            kind = make_union([kind, NULL])
        if not root and kind != ANY and self._measure(kind) > _INLINE:
            alias = self._unique_name(name)
            self.definitions.append(TypeDefinition(name=alias, alias=kind, doc=f"Part of `{self._title}`."))
            kind = Reference(alias)
            if pointer is not None:
                self._resolved[pointer] = kind
        return kind

    def _build(self, schema: Mapping[str, Any], name: str, depth: int, pointer: str | None) -> Kind:
        schema = merge_all_of(schema, self._root)
        if "const" in schema:
            return _build_literals([schema["const"]])
        if isinstance(values := schema.get("enum"), list):
            return _build_literals(values)
        options = as_sequence(schema.get("anyOf")) or as_sequence(schema.get("oneOf"))
        if options and as_mapping(schema.get("properties")):
            schema = flatten_object(schema, self._root)
        elif options:
            if len(options) > _VALUES:
                return ANY
            return make_union(
                [self._resolve_type(option, f"{name}Option{at}", depth + 1) for at, option in enumerate(options, 1)]
            )
        kinds = schema.get("type")
        if isinstance(kinds, list):
            return make_union([self._build_from_type(schema, kind, name, depth, pointer) for kind in kinds[:10]])
        return self._build_from_type(schema, kinds, name, depth, pointer)

    def _build_from_type(
        self, schema: Mapping[str, Any], kind: object, name: str, depth: int, pointer: str | None
    ) -> Kind:
        if kind == "null":
            return NULL
        if isinstance(kind, str) and kind in _SCALARS:
            return Scalar(kind)
        if kind == "array" or (kind is None and "items" in schema):
            return ListOf(self._build_items(schema, name, depth))
        if kind == "object" or (kind is None and ("properties" in schema or "additionalProperties" in schema)):
            return self._build_object(schema, name, depth, pointer)
        return ANY

    def _build_items(self, schema: Mapping[str, Any], name: str, depth: int) -> Kind:
        first = schema.get("prefixItems", schema.get("items"))
        if not isinstance(first, list):
            return self._resolve_type(first, f"{name}Item", depth + 1)
        others = schema.get("items") if "prefixItems" in schema else schema.get("additionalItems")
        rest = [] if others is None or others is False else [others]
        return make_union(
            [self._resolve_type(item, f"{name}Item{at}", depth + 1) for at, item in enumerate((first + rest)[:32], 1)]
        )

    def _build_object(self, schema: Mapping[str, Any], name: str, depth: int, pointer: str | None) -> Kind:
        fields: Mapping[str, Any] = {}
        if as_mapping(schema.get("properties")) or depth == 0:
            fields = list_properties(schema)
        patterns = list(as_mapping(schema.get("patternProperties")).values())
        additional = schema.get("additionalProperties")
        if not fields or len(fields) > _FIELDS:
            values = (
                [*patterns, additional]
                if isinstance(additional, Mapping) or (patterns and additional is True)
                else patterns
            )
            value = (
                make_union([self._resolve_type(value, f"{name}Value", depth + 1) for value in values[:16]])
                if not fields
                else ANY
            )
            return MapOf(value)
        own = name if depth == 0 and name == self._title else self._unique_name(name)
        if pointer is not None:
            self._unfinished[pointer] = own
        kinds = self._build_fields(fields, list_required(schema), own, depth)
        is_open = bool(patterns) or additional is True or isinstance(additional, Mapping)
        self.definitions.append(
            TypeDefinition(name=own, fields=kinds, is_open=is_open, doc=f"Part of `{self._title}`.")
        )
        return Reference(own)

    def _build_fields(
        self, fields: Mapping[str, Any], needed: Collection[str], own: str, depth: int
    ) -> tuple[Field, ...]:
        return tuple(
            Field(
                key=key,
                kind=self._resolve_type(schema, own + pascal_case(key), depth + 1),
                is_required=key in needed,
                schema=schema,
            )
            for key, schema in fields.items()
        )

    def _unique_name(self, preferred: str) -> str:
        """Return a name that no other type has."""
        base = preferred[:_NAME]
        name, number = base, 2
        while name in self.names:
            name, number = f"{base}{number}", number + 1
        self.names.add(name)
        return name


def _build_literals(values: list[Any]) -> Kind:
    return make_union([_build_literal(value) for value in values[:1000]], most=8) if values else ANY


def _build_literal(value: object) -> Kind:
    if value is None:
        return NULL
    if isinstance(value, bool):
        return Literals((("boolean", value),))
    if isinstance(value, int):
        return Literals((("integer", value),)) if abs(value) < 2**63 else Scalar("integer")
    if isinstance(value, str):
        return Literals((("string", value),)) if len(value) <= _VALUES else Scalar("string")
    return Scalar("number") if isinstance(value, float) else ANY
