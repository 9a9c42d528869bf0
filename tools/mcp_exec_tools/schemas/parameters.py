"""The parameters that an input schema names, also in its parts and alternatives, and its rules for several of them."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from mcp_exec_tools.names import parameter_names
from mcp_exec_tools.schemas.reading import as_mapping, as_sequence, fits, list_required, merge_all_of, resolve_reference

_MAX_RULE_DEPTH: Final = 6
_MAX_OPTIONS: Final = 20
_MAX_LISTED_NAMES: Final = 12
_MAX_RULES: Final = 12
_MAX_RULE_PARTS: Final = 200
"""Parts of schemas that are read in all."""
_MAX_TEXT: Final = 400
_MAX_VALUE: Final = 40

Schema = Mapping[str, Any]
Names = Mapping[str, str]


def list_rules(
    schema: Schema,
    root: Schema,
    names: Names,
    *,
    listed: Collection[str] = (),
    show: Callable[[str | bool], str] = repr,
) -> list[str]:
    """Return sentences such as `pass either content, or source_url`, without a capital and a full stop.

    `names` are the shown names of parameters, `listed` those that every call has in any case. `show` returns a value as
    code.
    """
    found: list[str] = []
    for rule in _iterate_rules(schema, root, _Speaker(names, root, listed, show), depth=0):
        text = " ".join("".join(each if each.isprintable() else " " for each in rule).split())
        text = text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 4] + " ..."
        if text not in found:
            found.append(text)
        if len(found) == _MAX_RULES:
            break
    return found


class _Speaker:
    """Phrases of schemas that are part of a rule."""

    def __init__(self, names: Names, root: Schema, listed: Collection[str], show: Callable[[str | bool], str]) -> None:
        self._names, self._root, self._listed, self._show = names, root, listed, show
        self._left = _MAX_RULE_PARTS

    def may_read(self) -> bool:
        """Return whether another part may be read, and count it."""
        self._left -= 1
        return self._left >= 0

    def join(self, names: Collection[str], word: str = "and") -> str:
        """Return names as a list in words."""
        *first, last = [self._names.get(name, name[:_MAX_VALUE]) for name in list(names)[:_MAX_LISTED_NAMES]]
        if len(names) > _MAX_LISTED_NAMES:
            first, last = [*first, last], "more"
        return f"{', '.join(first)} {word} {last}" if first else last

    def describe(self, part: object) -> str:
        """Return what a call must pass to satisfy a schema, or nothing."""
        schema = self._read(part)
        values = self._list_values(schema)
        needed = [name for name in list_required(schema) if name not in self._listed or name in values]
        given = [self._names.get(name, name[:_MAX_VALUE]) + values.get(name, "") for name in needed[:_MAX_LISTED_NAMES]]
        given += [self._names.get(name, name) + text for name, text in values.items() if name not in needed][
            :_MAX_LISTED_NAMES
        ]
        given += ["more"] if len(needed) > _MAX_LISTED_NAMES else []
        return " and ".join(given)

    def describe_optional(self, part: object) -> str:
        """Return which other parameters a schema describes, or nothing."""
        schema = self._read(part)
        needed, values = list_required(schema), self._list_values(schema)
        properties = as_mapping(schema.get("properties"))
        own = [name for name in properties if name not in needed and name not in values and name not in self._listed]
        own = [name for name in own if properties[name] is not False]
        return f"optionally {self.join(own)}" if own else ""

    def _read(self, part: object) -> Schema:
        if not isinstance(part, Mapping) or not self.may_read():
            return {}
        resolved, _ = resolve_reference(part, self._root)
        return merge_all_of(as_mapping(resolved), self._root)

    def _list_values(self, schema: Schema) -> dict[str, str]:
        """Return `='value'` for each property that has only one value."""
        values: dict[str, str] = {}
        for name, each in as_mapping(schema.get("properties")).items():
            about = as_mapping(each)
            only = [about["const"]] if "const" in about else as_sequence(about.get("enum"))
            if 0 < len(only) <= 3 and all(isinstance(value, str | bool) for value in only):
                values[name] = "=" + " or ".join(
                    self._show(value[:_MAX_VALUE] if isinstance(value, str) else value) for value in only
                )
        return values


def _iterate_rules(schema: Schema, root: Schema, speaker: _Speaker, *, depth: int) -> Iterator[str]:
    if depth > _MAX_RULE_DEPTH or not speaker.may_read():
        return
    for part in as_sequence(schema.get("allOf"))[:_MAX_OPTIONS]:
        yield from _iterate_rules(as_mapping(part), root, speaker, depth=depth + 1)
    if isinstance(schema.get("$ref"), str):
        target, _ = resolve_reference(schema, root)
        if target is not root:
            yield from _iterate_rules(as_mapping(target), root, speaker, depth=depth + 1)
    for keyword in ("oneOf", "anyOf"):
        if text := _describe_options(as_sequence(schema.get(keyword)), speaker, is_exclusive=keyword == "oneOf"):
            yield text
    yield from _describe_conditions(schema, speaker)
    least = schema.get("minProperties")
    if isinstance(least, int) and least > len(list_required(schema)):
        yield f"pass at least {least if least > 1 else 'one'} of the parameters"


def _describe_options(options: Any, speaker: _Speaker, *, is_exclusive: bool) -> str:
    phrases: dict[str, bool] = {}
    for option in options[:_MAX_OPTIONS]:
        needed, optional = speaker.describe(option), speaker.describe_optional(option)
        phrase = " and ".join(filter(None, [needed, optional])) if needed else optional
        phrases[phrase or "none of them"] = bool(optional) or "=" in needed
    known = list(phrases)
    if len(known) < 2 or all(phrase == "none of them" for phrase in known):
        return ""
    known += ["others"] if len(options) > _MAX_OPTIONS else []
    if len(known) > 2:
        return f"pass {'exactly ' if is_exclusive else ''}one of: {'; '.join(known)}"
    both = "" if is_exclusive or any(phrases.values()) or "none of them" in phrases else ", or both"
    return f"pass either {known[0]}, or {known[1]}{both}"


def _describe_conditions(schema: Schema, speaker: _Speaker) -> Iterator[str]:
    condition = speaker.describe(schema["if"]) if "if" in schema else ""
    then, other = speaker.describe(schema.get("then")), speaker.describe(schema.get("else"))
    if condition and then:
        yield f"with {condition}, pass {then}" + (f", else {other}" if other else "")
    elif condition and other:
        yield f"without {condition}, pass {other}"
    dependencies = {**as_mapping(schema.get("dependencies")), **as_mapping(schema.get("dependentRequired"))}
    for name, needed in list(dependencies.items())[:_MAX_OPTIONS]:
        names = [each for each in as_sequence(needed) if isinstance(each, str)]
        if names:
            yield f"with {speaker.join([name])}, pass {speaker.join(names)} too"
    if excluded := list(list_required(as_mapping(schema.get("not")))):
        yield f"do not pass {speaker.join(excluded)}" + (" together" if len(excluded) > 1 else "")


_MAX_DEPTH: Final = 12
_MAX_NAMES: Final = 10_000
_MAX_PARTS: Final = 100
_MAX_SCHEMAS: Final = 1000
"""Schemas visited in all: each part may refer to the same others again."""
_MAX_VARIANTS: Final = 16


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

    def describe_rules(self, names: Mapping[str, str], *, show: Callable[[str | bool], str] = repr) -> list[str]:
        """Return the rules with other names, and with values as another language writes them."""
        return list_rules(self.schema, self.schema, names, listed=self.listed, show=show)


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
