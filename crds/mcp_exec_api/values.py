"""Enumerations that the command line reads, too. They need no library before they are part of a model."""

from enum import StrEnum
from typing import Any, Final, Literal, Self

LENIENT: Final[dict[str, bool]] = {"lenient": True}
"""Context of a validation that accepts values of an OpenEnum that only a newer version has."""


class OpenEnum(StrEnum):
    """Base of enumerations that later versions may extend. Unknown values are rejected, unless the context is LENIENT.

    An unknown value then becomes a member that the class does not list.
    """

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Return the schema of the enumeration with the exception for readers of newer versions."""
        from pydantic_core import core_schema

        return core_schema.with_info_wrap_validator_function(cls._read, handler(source))

    @classmethod
    def _read(cls, value: Any, handler: Any, info: Any) -> Any:
        try:
            return handler(value)
        except ValueError:  # pydantic's own error
            if info.context is not LENIENT or not isinstance(value, str):
                raise
            member: Self = cls._new_member_(cls, value)  # type: ignore[attr-defined] # the class's own __new__
            member._name_ = member._value_ = value
            return member


class Phase(StrEnum):
    """Phase of an execution."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    TIMED_OUT = "TimedOut"
    CANCELLED = "Cancelled"

    @property
    def finished(self) -> bool:
        """Whether the phase is final."""
        return self not in (Phase.PENDING, Phase.RUNNING)


class SkillState(OpenEnum):
    """State of a version of a skill."""

    DRAFT = "Draft"
    """Only executions of its author can use it."""
    APPROVED = "Approved"
    """All executions of the namespace can use it."""
    DEPRECATED = "Deprecated"
    """Approved once. Only executions that name its version can use it."""


UsageGrouping = Literal["use-case", "caller", "tool", "arm", "day", "model"]
"""By what usage is grouped. An arm is ROLLOUT/ARM, a day is one of UTC, a tool is SERVER.TOOL."""
