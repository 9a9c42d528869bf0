"""Parts shared by all resources: the base model, times, tool patterns, conditions and field errors.

Models use camelCase in the API and snake_case in Python, and reject unknown fields.
"""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, ValidationError
from pydantic.alias_generators import to_camel

from mcp_exec_tools.patterns import TOOL_PATTERN


def micro_time(moment: datetime) -> str:
    """Format a time as a Kubernetes MicroTime: RFC 3339, UTC, six digits of fraction."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


MicroTime = Annotated[datetime, PlainSerializer(micro_time, when_used="always")]

ToolPattern = Annotated[str, Field(min_length=3, max_length=256, pattern=TOOL_PATTERN)]
"""One tool as SERVER.TOOL, or several with a `*` at the end: `github.create_*`, `filesystem.*`, `*.*`."""

UserPattern = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^([^*]+\*?|\*)$")]
"""One user of executions, or several with a `*` at the end: `u-42`, `team-a/*`, `*`."""


class Model(BaseModel):
    """Base of all parts of a resource: immutable, camelCase in the API, no unknown fields."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True, use_attribute_docstrings=True
    )

    def to_api(self) -> dict[str, Any]:
        """Return the part as JSON data for the API server, without fields that are not set."""
        return self.model_dump(by_alias=True, exclude_none=True, mode="json")


class ConditionStatus(StrEnum):
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
    """Time at which the status last changed."""


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


def field_errors(error: ValidationError) -> list[FieldError]:
    """Convert a pydantic error to one FieldError per invalid field."""
    return [
        FieldError(
            field=".".join(str(part) for part in found["loc"] if part != "body") or "body",
            message="unknown field" if found["type"] == "extra_forbidden" else found["msg"],
        )
        for found in error.errors(include_url=False, include_context=False, include_input=False)
    ]
