"""Rules of a schema for several parameters together, in sentences."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from mcp_exec_tools.schemas.reading import as_mapping, as_sequence, list_required, merge_all_of, resolve_reference

_MAX_DEPTH: Final = 6
_MAX_OPTIONS: Final = 20
_MAX_NAMES: Final = 12
_MAX_RULES: Final = 12
_MAX_PARTS: Final = 200
"""Parts of schemas that are read in all."""
_MAX_TEXT: Final = 400
_MAX_VALUE: Final = 40

Schema = Mapping[str, Any]
Names = Mapping[str, str]


def list_rules(schema: Schema, root: Schema, names: Names, *, listed: Collection[str] = ()) -> list[str]:
    """Return sentences such as `pass either content, or source_url`, without a capital and a full stop.

    `names` are the shown names of parameters, `listed` those that every call has in any case.
    """
    found: list[str] = []
    for rule in _iterate_rules(schema, root, _Speaker(names, root, listed), depth=0):
        text = " ".join("".join(each if each.isprintable() else " " for each in rule).split())
        text = text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 4] + " ..."
        if text not in found:
            found.append(text)
        if len(found) == _MAX_RULES:
            break
    return found


class _Speaker:
    """Phrases of schemas that are part of a rule."""

    def __init__(self, names: Names, root: Schema, listed: Collection[str]) -> None:
        self._names, self._root, self._listed = names, root, listed
        self._left = _MAX_PARTS

    def may_read(self) -> bool:
        """Return whether another part may be read, and count it."""
        self._left -= 1
        return self._left >= 0

    def join(self, names: Collection[str], word: str = "and") -> str:
        """Return names as a list in words."""
        *first, last = [self._names.get(name, name[:_MAX_VALUE]) for name in list(names)[:_MAX_NAMES]]
        if len(names) > _MAX_NAMES:
            first, last = [*first, last], "more"
        return f"{', '.join(first)} {word} {last}" if first else last

    def describe(self, part: object) -> str:
        """Return what a call must pass to satisfy a schema, or nothing."""
        schema = self._read(part)
        values = self._list_values(schema)
        needed = [name for name in list_required(schema) if name not in self._listed or name in values]
        given = [self._names.get(name, name[:_MAX_VALUE]) + values.get(name, "") for name in needed[:_MAX_NAMES]]
        given += [self._names.get(name, name) + text for name, text in values.items() if name not in needed][
            :_MAX_NAMES
        ]
        given += ["more"] if len(needed) > _MAX_NAMES else []
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

    @staticmethod
    def _list_values(schema: Schema) -> dict[str, str]:
        """Return `='value'` for each property that has only one value."""
        values: dict[str, str] = {}
        for name, each in as_mapping(schema.get("properties")).items():
            about = as_mapping(each)
            only = [about["const"]] if "const" in about else as_sequence(about.get("enum"))
            if 0 < len(only) <= 3 and all(isinstance(value, str | bool) for value in only):
                values[name] = "=" + " or ".join(
                    repr(value[:_MAX_VALUE] if isinstance(value, str) else value) for value in only
                )
        return values


def _iterate_rules(schema: Schema, root: Schema, speaker: _Speaker, *, depth: int) -> Iterator[str]:
    if depth > _MAX_DEPTH or not speaker.may_read():
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
