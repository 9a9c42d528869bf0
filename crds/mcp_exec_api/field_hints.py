"""Sentences about invalid fields: what is wrong and what is allowed instead."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, get_args

from pydantic import BaseModel

from mcp_exec_tools.patterns import TOOL_PATTERN
from mcp_exec_tools.text import shorten_line

MAX_PART: Final = 128
"""Characters of one part of a field's path, which an invalid body may make as long as itself."""
_MAX_LISTED: Final = 40
_MIN_PREFIX: Final = 3
_TIME_EXAMPLE: Final = "write a time with its zone, for example 2026-11-22T06:00:00Z"
_LABEL: Final = "lower-case letters, digits and '-', with a letter or digit at both ends"
PATTERN_WORDS: Final[Mapping[str, str]] = {
    r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$": "the name of a module, for example pandas or os.path",
    TOOL_PATTERN: "SERVER.TOOL, each with an optional * at its end, for example github.create_* or filesystem.*",
    r"^([^*]+\*?|\*)$": "a name, with an optional * at its end, for example team-a/*",
    r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$": "a Kubernetes quantity, for example 250m, 2 or 512Mi",
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$": _LABEL,
    r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$": f"1 to 63 characters: {_LABEL}",
    r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$": _LABEL.replace("digits and '-'", "digits, '-' and '.'"),
    r"^(\*|[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*)$": "the name of a module, for example os.path, or *",
    r"^([A-Za-z0-9_./-]+\*?|\*)$": "the name of a tool, with an optional * at its end, for example list_*",
    r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$": "the name of an HTTP header, for example X-Api-Key",
    r"^[A-Za-z_][A-Za-z0-9_]*$": "letters, digits and '_', without a digit at the start",
    r"^[A-Za-z0-9]([-a-z0-9]*[a-z0-9])?$": f"Completed, or {_LABEL}",
    r"^https?://": "a URL that begins with http:// or https://",
    r"^[A-Z][A-Za-z]*$": "letters, with a capital first, for example OutputCut",
    r"^[^\x00-\x1f\x7f-\x9f]*$": "text without line breaks and other control characters",
    r"^[a-z0-9.+-]{1,63}/[a-z0-9.+-]{1,63}$": "a media type, for example image/png",
    r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$": "lower-case letters and digits in words that '-' separates, with a letter first",
    r"^[A-Za-z0-9]([-A-Za-z0-9_. ]*[A-Za-z0-9])?$": "letters, digits, '-', '_', '.' and spaces, with a letter or "
    "digit at both ends",
    r"^[0-9A-Za-z!+._ ]+$": "a version, for example 2.3.1 or 2.7.0+cpu",
    r"^[0-9a-f]{64}$": "64 hexadecimal digits in lower case",
}
"""What each pattern of a type allows, in words."""


def describe(found: Mapping[str, Any], model: type[BaseModel] | None, hidden: Collection[str] = ()) -> str:
    """Return what is wrong with a field, from an error of pydantic. `hidden` fields of `model` are not suggested."""
    kind, message = str(found["type"]), str(found["msg"])
    if kind == "extra_forbidden":
        return f"unknown field{_suggest(found['loc'], model, hidden)}"
    if kind == "string_pattern_mismatch" and (words := _find_words(message)) is not None:
        return f"it must be {words}"
    if kind.startswith(("datetime", "timezone")):
        return f"{message}; {_TIME_EXAMPLE}"
    return message


def _find_words(message: str) -> str | None:
    pattern = re.search(r"'(.*)'$", message, re.DOTALL)
    return PATTERN_WORDS.get(pattern[1]) if pattern else None


def _suggest(location: Sequence[Any], model: type[BaseModel] | None, hidden: Collection[str]) -> str:
    for part in location[:-1]:
        if isinstance(part, str) and part not in ("body", "query"):
            model = dict(_list_fields(model)).get(part) if model is not None else None
    if model is None:
        return ""
    fields = {name: inner for name, inner in _list_fields(model) if name not in hidden}
    listed = ", ".join(sorted(fields)[:_MAX_LISTED])
    meant = _find_meant(str(location[-1])[:MAX_PART], fields)
    return f"; did you mean {meant}? Allowed: {listed}" if meant else f"; allowed: {listed}"


def _find_meant(given: str, fields: Mapping[str, type[BaseModel] | None]) -> str | None:
    """Return the field, or the field of a field, that was probably meant."""
    names = {_normalize(name): _complete(name, inner) for name, inner in fields.items()}
    nested = {
        _normalize(name): f"{outer}.{name}"
        for outer, inner in fields.items()
        if inner is not None
        for name, _ in _list_fields(inner)
    }
    names = nested | names
    word = _normalize(given)
    if word in names:
        return names[word]
    begins = [name for name in names if len(word) >= _MIN_PREFIX and name.startswith(word)]
    close = begins or get_close_matches(word, names, n=1, cutoff=0.7)
    return names[close[0]] if close else None


def _complete(name: str, inner: type[BaseModel] | None) -> str:
    """Return a field's name, with that of its only field if it has one: `poolRef.name`."""
    only = [field for field, _ in _list_fields(inner)] if inner is not None else []
    return f"{name}.{only[0]}" if len(only) == 1 else name


def _normalize(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _list_fields(model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel] | None]]:
    """Yield each field by its name in JSON, and the model that it contains, if any."""
    for name, field in model.model_fields.items():
        yield field.alias or name, _find_model(field.annotation)


def _find_model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for part in get_args(annotation) if (model := _find_model(part)) is not None), None)


def format_path(location: Sequence[Any]) -> str:
    """Return the path of a field, `limits.outputBytes`, from the location in an error of pydantic.

    A field of the body itself is `body`.
    """
    return ".".join(shorten_line(str(part), MAX_PART) for part in location if part != "body") or "body"
