"""Parts shared by all resources: the base model, times, quantities, tool patterns, conditions and field errors.

Models use camelCase in the API and snake_case in Python, and reject unknown fields.
"""

import math
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from difflib import get_close_matches
from typing import Annotated, Any, Final, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel

from mcp_exec_api.constants import LENIENT as LENIENT
from mcp_exec_api.constants import MAX_SESSION_NAME
from mcp_exec_api.constants import OpenEnum as OpenEnum
from mcp_exec_tools.patterns import TOOL_PATTERN
from mcp_exec_tools.text import shorten_line

QUANTITY_PATTERN: Final = r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$"
REPOSITORY: Final = r"(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9][A-Za-z0-9._-]*)(:[0-9]+)?(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*"
"""Expression of a registry and a path, or of an image's name without tag and digest."""
IMAGE: Final = REPOSITORY + r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?"
"""Expression of an image, with its tag, its digest, both or neither."""
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
    QUANTITY_PATTERN: "a Kubernetes quantity, for example 250m, 2 or 512Mi",
    r"^[1-9][0-9]*$": "a whole number of at least 1, for example 2",
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
    f"^{IMAGE}$": "an image without https://, for example registry.example.com/team/image:1.2",
    r"^https?://[^/]+$": "an address without a path, for example https://minio.example.com",
    r"^https?://[^\s?#]+$": "an address, for example https://mcp-exec.example.com",
    r"^[a-z0-9][-a-z0-9.]{1,61}[a-z0-9]$": "the name of a bucket: 3 to 63 lower-case letters, digits, '-' and '.'",
    r"^[A-Za-z0-9][-A-Za-z0-9._/]{0,200}$": "letters, digits, '-', '.', '_' and '/', for example team/files",
    r"^[-a-z0-9]{0,64}$": "a region, for example eu-central-1",
    r"^[A-Z]{3}$": "three capital letters, for example EUR",
    r"^[-._a-zA-Z0-9]+$": "a key of a ConfigMap or Secret, for example ca.crt",
}
"""What each pattern of a type allows, in words."""


def describe(found: Mapping[str, Any], model: type[BaseModel] | None, hidden: Collection[str] = ()) -> str:
    """Return what is wrong with a field, from an error of pydantic. `hidden` fields of `model` are not suggested."""
    kind, message = str(found["type"]), str(found["msg"])
    if kind == "extra_forbidden":
        return f"unknown field{_suggest(found['loc'], model, hidden)}"
    if kind == "string_pattern_mismatch" and (pattern := re.search(r"'(.*)'$", message, re.DOTALL)):
        return f"it must be {words}" if (words := find_words(pattern[1])) else message
    if kind.startswith(("datetime", "timezone")):
        return f"{message}; {_TIME_EXAMPLE}"
    return message.removeprefix("Value error, ")


def find_words(pattern: str, words: Mapping[str, str] = PATTERN_WORDS) -> str | None:
    """Return what a pattern allows, in words; `^(...)?$` also allows an empty text."""
    if pattern in words:
        return words[pattern]
    optional = re.fullmatch(r"\^\((.*)\)\?\$", pattern)
    inner = words.get(f"^{optional[1]}$") if optional else None
    return f"{inner}, or empty" if inner else None


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


WHOLE: Final = "body"
"""Path of an error that concerns an input as a whole, such as two fields that exclude each other."""


def drop_null_fields(data: dict[str, Any], model: type[BaseModel]) -> bool:
    """Remove the fields of a model, and of its parts, that are null and can be left out. Return whether there were any.

    Many serializers write null for a field that is not set. Null within data, such as a context, is a value and stays.
    """
    found = False
    for name, field in model.model_fields.items():
        name = field.alias or name
        value, inner = data.get(name), _find_model(field.annotation)
        if name in data and value is None and not field.is_required():
            del data[name]
            found = True
        elif inner is not None:
            for part in value if isinstance(value, list) else [value]:
                found |= isinstance(part, dict) and drop_null_fields(part, inner)
    return found


def format_path(location: Sequence[Any]) -> str:
    """Return the path of a field, `limits.outputBytes`, from the location in an error of pydantic.

    A field of the body itself is `body`.
    """
    return ".".join(shorten_line(str(part), MAX_PART) for part in location if part != WHOLE) or WHOLE


def micro_time(moment: datetime) -> str:
    """Format a time as a Kubernetes MicroTime: RFC 3339, UTC, six digits of fraction."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


MicroTime = Annotated[
    datetime,
    PlainSerializer(micro_time, when_used="always"),
    WithJsonSchema({"type": "string", "format": "date-time"}, mode="serialization"),
]

ToolPattern = Annotated[str, Field(max_length=256, pattern=TOOL_PATTERN)]
"""One tool as SERVER.TOOL, or several with a `*` at the end: `github.create_*`, `filesystem.*`, `*.*`."""

UserPattern = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^([^*]+\*?|\*)$")]
"""One user of executions, or several with a `*` at the end: `u-42`, `team-a/*`, `*`."""


SessionName = Annotated[
    str, Field(min_length=1, max_length=MAX_SESSION_NAME, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
]
"""Name of a session, as a DNS label."""


def check_one_line(text: str | None) -> str | None:
    """Return the text. Raises ValueError if it has control characters."""
    if text is not None and any(unicodedata.category(character) == "Cc" for character in text):
        raise ValueError("line breaks, tabs and other control characters are not allowed")
    return text


class Model(BaseModel):
    """Base of all parts of a resource: immutable, camelCase in the API, no unknown fields."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True, use_attribute_docstrings=True
    )

    def to_api(self) -> dict[str, Any]:
        """Return the part as JSON data for the API server, without fields that are not set."""
        return self.model_dump(by_alias=True, exclude_none=True, mode="json")


class ConditionStatus(OpenEnum):
    """Status of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(Model):
    """Observation about an object, like `metav1.Condition`."""

    type: Annotated[str, Field(max_length=64)]
    """Type of the condition in CamelCase."""
    status: ConditionStatus
    """Whether the condition is true: True, False or Unknown."""
    reason: Annotated[str, Field(max_length=128)] = ""
    """Reason for the status, as one CamelCase word for programs."""
    message: Annotated[str, Field(max_length=4096)] = ""
    """Reason for the status, as a sentence for people."""
    last_transition_time: MicroTime
    """Time when the status last changed."""


def set_condition(conditions: list[Condition], new: Condition) -> list[Condition]:
    """Return the conditions with `new` added or replaced by type. An unchanged status keeps its transition time."""
    old = next((condition for condition in conditions if condition.type == new.type), None)
    if old is not None and old.status == new.status:
        new = new.model_copy(update={"last_transition_time": old.last_transition_time})
    if old is None:
        return [*conditions, new]
    return [new if condition.type == new.type else condition for condition in conditions]


class FieldError(BaseModel):
    """Error in one field of an input."""

    model_config = ConfigDict(frozen=True)

    field: str
    """Path of the field, for example `limits.outputBytes`."""
    message: str
    """What is wrong and what is allowed."""

    def format(self, place: str = "") -> str:
        """Return path and message; the path begins with `place`. An error of the whole input has no path of its own."""
        path = ".".join(part for part in (place, self.field) if part and part != WHOLE)
        return f"{path}: {self.message}" if path else self.message


MAX_FIELD_ERRORS: Final = 20
"""Errors of one input that are reported: each names all that is allowed, so that more would multiply a body's bytes."""


def field_errors(
    error: ValidationError, model: type[BaseModel] | None = None, *, hidden: Collection[str] = ()
) -> list[FieldError]:
    """Convert a pydantic error to one FieldError per invalid field.

    With the model, an unknown field's message names those that are allowed, except for `hidden` ones.
    """
    found = error.errors(include_url=False, include_context=False, include_input=False)
    errors = [
        FieldError(field=format_path(each["loc"]), message=describe(each, model, hidden))
        for each in found[:MAX_FIELD_ERRORS]
    ]
    more = len(found) - len(errors)
    return [*errors, FieldError(field=WHOLE, message=f"{more} more errors")] if more else errors


def explain_errors(error: ValidationError, model: type[BaseModel] | None = None, *, place: str = "") -> str:
    """Return all errors of an input as one text. See `field_errors` and `FieldError.format`."""
    return "; ".join(each.format(place) for each in field_errors(error, model))


Image = Annotated[str, Field(min_length=1, max_length=512, pattern=f"^{IMAGE}$")]
"""A container image."""


def _write_quantity(value: Any) -> Any:
    """Return a number as text: people write `cpu: 2`, and a Pod takes it."""
    if isinstance(value, float) and math.isfinite(value):
        return f"{Decimal(repr(value)):f}".removesuffix(".0")
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Quantity = Annotated[
    str,
    Field(max_length=32, pattern=QUANTITY_PATTERN, json_schema_extra={"type": ["string", "number"], "minimum": 0}),
    BeforeValidator(_write_quantity),
]
"""A Kubernetes quantity such as `512Mi` and `250m`, or a number as a Pod takes it."""

_SUFFIXES = {
    "m": Decimal("0.001"),
    "": Decimal(1),
    **{letter: Decimal(1000) ** power for power, letter in enumerate(["k", "M", "G", "T"], 1)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate(["K", "M", "G", "T"], 1)},
}


def parse_quantity(text: str) -> Decimal:
    """Parse a quantity to a number in its base unit (cores or bytes). Raises ValueError if it is not a quantity."""
    number = text.rstrip("kKMGTim")
    suffix = text[len(number) :]
    if suffix not in _SUFFIXES or not number.replace(".", "", 1).isdigit():
        raise ValueError(f"{text!r} is not a quantity; examples are 512Mi and 250m")
    return Decimal(number) * _SUFFIXES[suffix]
