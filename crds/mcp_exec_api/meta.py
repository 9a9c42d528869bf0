"""Parts shared by all resources: the base model, times, quantities, tool patterns, conditions and field errors.

Models use camelCase in the API and snake_case in Python, and reject unknown fields.
"""

import unicodedata
from collections.abc import Collection
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Final, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    PlainSerializer,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, core_schema

from mcp_exec_api.constants import MAX_SESSION_NAME
from mcp_exec_api.field_hints import describe, format_path
from mcp_exec_tools.patterns import TOOL_PATTERN


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

ToolPattern = Annotated[str, Field(min_length=3, max_length=256, pattern=TOOL_PATTERN)]
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


LENIENT: Final[dict[str, bool]] = {"lenient": True}
"""Context of a validation that accepts values of an OpenEnum that only a newer version has."""


class OpenEnum(StrEnum):
    """Base of enumerations that later versions may extend. Unknown values are rejected, unless the context is LENIENT.

    An unknown value then becomes a member that the class does not list.
    """

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of the enumeration with the exception for readers of newer versions."""
        return core_schema.with_info_wrap_validator_function(cls._read, handler(source))

    @classmethod
    def _read(cls, value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        try:
            return handler(value)
        except ValidationError:
            if info.context is not LENIENT or not isinstance(value, str):
                raise
            member: Self = cls._new_member_(cls, value)  # type: ignore[attr-defined] # the class's own __new__
            member._name_ = member._value_ = value
            return member


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
    return [*errors, FieldError(field="body", message=f"{more} more errors")] if more else errors


Quantity = Annotated[
    str,
    Field(max_length=32, pattern=r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$"),
]
"""A Kubernetes quantity such as `512Mi` and `250m`."""

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
