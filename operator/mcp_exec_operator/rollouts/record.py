"""One rollout in memory: its spec and the status that was read or written last."""

from dataclasses import dataclass
from typing import Self

from pydantic import ValidationError

from mcp_exec_api.execution_rollout import ExecutionRolloutSpec
from mcp_exec_api.meta import field_errors
from mcp_exec_api.rollout_status import ExecutionRolloutStatus
from mcp_exec_common.kube.objects import Object, drop_empty_fields
from mcp_exec_common.kube.reflector import ObjectKey, object_key


@dataclass(frozen=True, kw_only=True)
class RolloutRecord:
    """A rollout as last observed."""

    key: ObjectKey
    uid: str
    version: str
    generation: int
    spec: ExecutionRolloutSpec | None
    """None if the spec contradicts itself, which API servers without CEL accept."""
    status: ExecutionRolloutStatus | None
    """None if it has fields that this operator cannot read, which a newer one has written."""
    problem: str = ""
    """What is wrong with the spec or the status; empty if nothing is."""

    @classmethod
    def from_object(cls, body: Object) -> Self:
        """Read a rollout."""
        metadata, problems = body["metadata"], []
        spec = status = None
        try:
            spec = ExecutionRolloutSpec.model_validate(body.get("spec") or {})
        except ValidationError as error:
            found = field_errors(error, ExecutionRolloutSpec)
            problems.append("the spec is invalid: " + "; ".join(f"{each.field}: {each.message}" for each in found))
        try:
            status = ExecutionRolloutStatus.model_validate(body.get("status") or {})
        except ValidationError as error:
            found = field_errors(error, ExecutionRolloutStatus)
            fields = ", ".join(each.field for each in found)
            problems.append(f"another version of the operator wrote the status; it is left as it is: {fields}")
        return cls(
            key=object_key(body),
            uid=metadata["uid"],
            version=metadata["resourceVersion"],
            generation=int(metadata.get("generation", 0)),
            spec=spec,
            status=status,
            problem="; ".join(problems),
        )

    @property
    def is_active(self) -> bool:
        """Whether the status may change: the rollout has not ended, or its spec has changed since."""
        if self.status is None:
            return False
        return not self.status.phase.is_final or self.status.observed_generation != self.generation


def build_status(status: ExecutionRolloutStatus) -> Object:
    """Return a status as the API server gets it: some versions read an empty text as null and reject it."""
    fields = drop_empty_fields(status.to_api())
    return fields | {"conditions": [drop_empty_fields(each) for each in fields.get("conditions", ())]}
