"""Builder of a skill's status. A pure function from JSON data to JSON data."""

from dataclasses import dataclass
from datetime import datetime

from mcp_exec_api.code_findings import Finding
from mcp_exec_api.meta import Condition, ConditionStatus, micro_time, set_condition
from mcp_exec_common.kube.objects import Object, drop_empty_fields
from mcp_exec_operator.skills.index import SkillEntry
from mcp_exec_tools.text import shorten

_MAX_MESSAGE = 1024


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """What was found in the code of a skill."""

    parameters: Object | None = None
    findings: tuple[Finding, ...] = ()
    problem: str = ""


@dataclass(kw_only=True)
class SkillCounts:
    """Executions that got a skill and are not in its status yet."""

    uses: int = 0
    successes: int = 0
    last: datetime | None = None


def build_status(
    status: Object, entry: SkillEntry, *, inspection: Inspection | None, usage: SkillCounts | None, moment: datetime
) -> Object:
    """Return the status with the present state, what was found in the code, and the use since the last write."""
    reading = entry.reading
    fields: Object = {
        "state": str(entry.state),
        "author": reading.author,
        "digest": status.get("digest") or reading.digest,
        "reviewedBy": reading.reviewed_by,
        "reviewedAt": reading.reviewed_at,
    }
    problem = entry.problem
    if inspection is not None:
        problem = problem or inspection.problem
        fields["parameters"] = inspection.parameters
        fields["codeFindings"] = [finding.to_api() for finding in inspection.findings] or None
    if inspection is not None or entry.problem:
        fields["conditions"] = _build_conditions(status, problem, moment)
    if usage is not None and usage.uses:
        fields["uses"] = int(status.get("uses") or 0) + usage.uses
        fields["successes"] = int(status.get("successes") or 0) + usage.successes
        fields["lastUsedAt"] = micro_time(usage.last or moment)
    return drop_empty_fields({**status, **fields})


def _build_conditions(status: Object, problem: str, moment: datetime) -> list[Object]:
    known = [Condition.model_validate(condition) for condition in status.get("conditions") or ()]
    valid = Condition(
        type="Valid",
        status=ConditionStatus.FALSE if problem else ConditionStatus.TRUE,
        reason="Invalid" if problem else "Valid",
        message=shorten(problem, _MAX_MESSAGE),
        last_transition_time=moment,
    )
    return [drop_empty_fields(condition.to_api()) for condition in set_condition(known, valid)]
