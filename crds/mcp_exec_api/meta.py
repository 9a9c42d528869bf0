"""What every resource shares: the base model, object metadata and conditions.

Models speak the API's camelCase on the wire and snake_case in Python, and refuse fields that they don't know.
"""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, ValidationError
from pydantic.alias_generators import to_camel

from mcp_exec_tools.patterns import TOOL_PATTERN


def micro_time(moment: datetime) -> str:
    """The moment as Kubernetes writes a MicroTime: RFC 3339, UTC, six digits of fraction."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def now() -> datetime:
    """This moment, in UTC."""
    return datetime.now(UTC)


MicroTime = Annotated[datetime, PlainSerializer(micro_time, when_used="always")]

ToolPattern = Annotated[str, Field(min_length=3, max_length=256, pattern=TOOL_PATTERN)]
"""A tool as SERVER.TOOL, with its name at the server, or more of them: `github.create_*`, `filesystem.*`, `*.*`."""

UserPattern = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^([^*]+\*?|\*)$")]
"""A user of executions, or with a star at its end all whose names begin so: `u-42`, `team-a/*`, `*`."""


class Model(BaseModel):
    """A part of a resource: immutable, camelCase on the wire, unknown fields refused."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True, use_attribute_docstrings=True
    )

    def to_api(self) -> dict[str, Any]:
        """The part as JSON data for the API server; what is not set is left out."""
        return self.model_dump(by_alias=True, exclude_none=True, mode="json")


class ConditionStatus(StrEnum):
    """The three values of a condition's status."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(Model):
    """One observation about an object, as `metav1.Condition` has it."""

    type: Annotated[str, Field(max_length=64)]
    """What was observed, in CamelCase."""
    status: ConditionStatus
    """Whether it holds."""
    reason: Annotated[str, Field(max_length=128)] = ""
    """Why, as one CamelCase word for programs."""
    message: Annotated[str, Field(max_length=4096)] = ""
    """Why, as a sentence for people."""
    last_transition_time: MicroTime
    """When the status last changed."""


def set_condition(conditions: list[Condition], new: Condition) -> list[Condition]:
    """The conditions with `new` in the place of its type; an unchanged status keeps its transition time."""
    old = next((condition for condition in conditions if condition.type == new.type), None)
    if old is not None and old.status == new.status:
        new = new.model_copy(update={"last_transition_time": old.last_transition_time})
    if old is None:
        return [*conditions, new]
    return [new if condition.type == new.type else condition for condition in conditions]


class FieldError(BaseModel):
    """What is wrong with one field of an input."""

    model_config = ConfigDict(frozen=True)

    field: str
    """The field's path, such as `limits.outputBytes`."""
    message: str
    """What is wrong and what is allowed."""


def field_errors(error: ValidationError) -> list[FieldError]:
    """A pydantic error as one FieldError for each field that is wrong."""
    return [
        FieldError(
            field=".".join(str(part) for part in found["loc"] if part != "body") or "body",
            message="unknown field" if found["type"] == "extra_forbidden" else found["msg"],
        )
        for found in error.errors(include_url=False, include_context=False, include_input=False)
    ]


PropagationPolicy = Literal["Background", "Foreground", "Orphan"]
