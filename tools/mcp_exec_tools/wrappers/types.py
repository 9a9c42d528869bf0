"""Conversion of JSON Schemas to Python types: a module's type definitions."""

import keyword
import re
from collections.abc import Collection, Iterable, Mapping
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
from mcp_exec_tools.wrappers.text import (
    ANY,
    NONE,
    Expression,
    Generic,
    Name,
    Union,
    format_docstring,
    format_expression,
    format_literal,
    make_union,
)

BUILTINS: Final = frozenset({"str", "int", "float", "bool", "list", "dict"})
"""Built-in names in generated types. A tool may have any of these names."""
TYPING: Final = frozenset({"Any", "Literal", "NotRequired", "TypeAlias", "TypedDict", "Union", "Unpack"})

_DEPTH, _TYPES, _FIELDS, _VALUES, _NAME, _INLINE = 12, 200, 500, 100, 50, 60
_SAFE: Final = re.compile(r"(?!__)[A-Za-z_][A-Za-z0-9_]{0,59}")
_SCALARS: Final = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}


def pascal_case(name: str) -> str:
    """Return the name in PascalCase, as a type's name: `create_issue` is `CreateIssue`."""
    text = "".join(word.capitalize() for word in words(name)) or "Tool"
    text = normalize(text)
    return text if text.isidentifier() else f"_{text}"


@dataclass(frozen=True)
class TypeDefinition:
    """Named type: an alias if `alias` is set, else a TypedDict."""

    name: str
    alias: Expression | None = None
    fields: tuple[tuple[str, Expression, bool], ...] = ()
    """Key, type and whether it is required, for each field of a TypedDict."""
    doc: str = ""

    def lines(self, taken: frozenset[str], *, stub: bool = False) -> list[str]:
        """Return the definition's source. `taken` are names with another meaning in the module."""
        if self.alias is not None:
            return format_expression(f"{self.name}: TypeAlias = ", self.alias)
        if all(_SAFE.fullmatch(key) and not keyword.iskeyword(key) and key not in taken for key, _, _ in self.fields):
            return self._class(stub=stub)
        lines = [f"{self.name} = TypedDict(", f"    {format_literal(self.name)},", "    {"]
        for key, kind, needed in self.fields:
            lines += format_expression(f"{format_literal(key)}: ", _field_type(kind, needed), ",", indent=" " * 8)
        return [*lines, "    },", ")"]

    def _class(self, *, stub: bool) -> list[str]:
        lines = [f"class {self.name}(TypedDict):"]
        if stub and not self.fields:
            return [f"class {self.name}(TypedDict): ..."]
        if not stub:
            lines += format_docstring(self.doc, indent="    ") + ([""] if self.fields else [])
        for key, kind, needed in self.fields:
            lines += format_expression(f"{key}: ", _field_type(kind, needed), indent="    ")
        return lines


class TypeBuilder:
    """Builder of one module's definitions, ordered so that each follows those that it needs."""

    def __init__(self, *names: str, is_shadowed: bool = False) -> None:
        self.definitions: list[TypeDefinition] = []
        self._names = {*names, *TYPING}
        self._prefix = "builtins." if is_shadowed else ""
        self._root: Mapping[str, Any] = {}
        self._title = ""
        self._resolved: dict[str, Expression] = {}
        self._unfinished: dict[str, str | None] = {}

    @property
    def taken(self) -> frozenset[str]:
        """The names that a field of a class must not have, because they are names of types in the module."""
        return frozenset(self._names | BUILTINS | {"builtins"})

    def builtin(self, name: str) -> Name:
        """Return the name of a built-in type, qualified if a tool has the same name."""
        return Name(self._prefix + name)

    def define_arguments(self, name: str, parameters: Parameters, *, doc: str) -> None:
        """Define a name that was given to the constructor as the type of all arguments.

        Without parameters it accepts none unless the schema allows others. A parameter with a default is optional.
        """
        self._begin(name, parameters.schema)
        if len(parameters.schemas) > _FIELDS or (parameters.is_open and not parameters.schemas):
            kind = Generic(self._prefix + "dict", (self.builtin("str"), ANY))
            self.definitions.append(TypeDefinition(name, alias=kind))
            return
        fields = self._build_fields(parameters.schemas, parameters.required, name, 0)
        self.definitions.append(TypeDefinition(name, fields=fields, doc=doc))

    def define(self, name: str, schema: object, *, doc: str) -> None:
        """Define a name that was given to the constructor as the schema's type."""
        self._begin(name, schema)
        kind = self._resolve_type(schema, name, 0, root=True)
        if kind != Name(name):
            self.definitions.append(TypeDefinition(name, alias=kind))
        else:
            self.definitions = [
                TypeDefinition(name, fields=definition.fields, doc=doc) if definition.name == name else definition
                for definition in self.definitions
            ]

    def _begin(self, name: str, schema: object) -> None:
        self._root, self._title, self._resolved, self._unfinished = as_mapping(schema), name, {}, {}

    def _resolve_type(self, schema: object, name: str, depth: int, *, root: bool = False) -> Expression:
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
            return ANY if unfinished is None else Name(f'"{unfinished}"')
        else:
            self._unfinished[pointer] = None
            hint = name if root else self._title + pascal_case(pointer.rpartition("/")[2])
            kind = self._build(resolved, hint, depth, pointer)
            self._resolved[pointer] = kind
        if is_nullable(schema) or is_nullable(resolved):
            kind = make_union([kind, NONE])
        if not root and len(kind.flat()) > _INLINE and kind.flat() != ANY.text:
            alias = self._unique_name(name)
            self.definitions.append(TypeDefinition(alias, alias=kind))
            kind = Name(alias)
            if pointer is not None:
                self._resolved[pointer] = kind
        return kind

    def _build(self, schema: Mapping[str, Any], name: str, depth: int, pointer: str | None) -> Expression:
        schema = merge_all_of(schema, self._root)
        if "const" in schema:
            return self._build_literals([schema["const"]])
        if isinstance(values := schema.get("enum"), list):
            return self._build_literals(values)
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
    ) -> Expression:
        if kind == "null":
            return NONE
        if isinstance(kind, str) and kind in _SCALARS:
            return self.builtin(_SCALARS[kind])
        if kind == "array" or (kind is None and "items" in schema):
            return Generic(self._prefix + "list", (self._build_items(schema, name, depth),))
        if kind == "object" or (kind is None and ("properties" in schema or "additionalProperties" in schema)):
            return self._build_object(schema, name, depth, pointer)
        return ANY

    def _build_items(self, schema: Mapping[str, Any], name: str, depth: int) -> Expression:
        first = schema.get("prefixItems", schema.get("items"))
        if not isinstance(first, list):
            return self._resolve_type(first, f"{name}Item", depth + 1)
        others = schema.get("items") if "prefixItems" in schema else schema.get("additionalItems")
        rest = [] if others is None or others is False else [others]
        return make_union(
            [self._resolve_type(item, f"{name}Item{at}", depth + 1) for at, item in enumerate((first + rest)[:32], 1)]
        )

    def _build_object(self, schema: Mapping[str, Any], name: str, depth: int, pointer: str | None) -> Expression:
        fields: Mapping[str, Any] = {}
        if as_mapping(schema.get("properties")) or depth == 0:
            fields = list_properties(schema)
        if not fields or len(fields) > _FIELDS:
            patterns = list(as_mapping(schema.get("patternProperties")).values())
            additional = schema.get("additionalProperties")
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
            return Generic(self._prefix + "dict", (self.builtin("str"), value))
        own = name if depth == 0 and name == self._title else self._unique_name(name)
        if pointer is not None:
            self._unfinished[pointer] = own
        kinds = self._build_fields(fields, list_required(schema), own, depth)
        self.definitions.append(TypeDefinition(own, fields=kinds, doc=f"Part of `{self._title}`."))
        return Name(own)

    def _build_fields(
        self, fields: Mapping[str, Any], needed: Collection[str], own: str, depth: int
    ) -> tuple[tuple[str, Expression, bool], ...]:
        return tuple(
            (key, self._resolve_type(field, own + pascal_case(key), depth + 1), key in needed)
            for key, field in fields.items()
        )

    def _build_literals(self, values: list[Any]) -> Expression:
        return make_union([self._build_literal(value) for value in values[:1000]], most=8) if values else ANY

    def _build_literal(self, value: object) -> Expression:
        if value is None:
            return NONE
        if isinstance(value, bool):
            return Generic("Literal", (Name(str(value)),))
        if isinstance(value, int):
            return Generic("Literal", (Name(str(value)),)) if abs(value) < 2**63 else self.builtin("int")
        if isinstance(value, str):
            return Generic("Literal", (Name(format_literal(value)),)) if len(value) <= _VALUES else self.builtin("str")
        return self.builtin("float") if isinstance(value, float) else ANY

    def _unique_name(self, preferred: str) -> str:
        """Return a name that no other type has."""
        base = preferred[:_NAME]
        name, number = base, 2
        while name in self._names:
            name, number = f"{base}{number}", number + 1
        self._names.add(name)
        return name


def _field_type(kind: Expression, needed: bool) -> Expression:
    return kind if needed else Generic("NotRequired", (kind,))


def find_imports(definitions: Iterable[TypeDefinition]) -> set[str]:
    """Return the names that the definitions import from `typing`, and "builtins" if they need that module."""
    imports: set[str] = set()
    for definition in definitions:
        if definition.alias is not None:
            imports |= {"TypeAlias"} | _find_names(definition.alias)
            continue
        imports.add("TypedDict")
        for _, kind, needed in definition.fields:
            imports |= _find_names(_field_type(kind, needed))
    return imports


def _find_names(kind: Expression) -> set[str]:
    if isinstance(kind, Name):
        return {kind.text} & TYPING | ({"builtins"} if kind.text.startswith("builtins.") else set())
    if isinstance(kind, Union):
        own = {"Union"} if kind.flat().startswith("Union[") else set()
        return own.union(*map(_find_names, kind.members))
    own = {"builtins"} if kind.name.startswith("builtins.") else {kind.name} & TYPING
    return own.union(*map(_find_names, kind.items))
