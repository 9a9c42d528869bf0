"""Where a rollout can be promoted to. Pure."""

from mcp_exec_api.execution_rollout import COMPLETED, ExecutionRolloutSpec


class NoLaterStage(Exception):
    """The requested stage is not a later one; the message names those that are."""


def choose_promotion(spec: ExecutionRolloutSpec, stage: str | None, to: str | None) -> str:
    """Return the value of `spec.promotedTo`: `to`, or by default the stage after the present one.

    Raises NoLaterStage. Before the first stage, the end is not allowed.
    """
    present = spec.find_stage(stage)
    later = [each.name for each in spec.stages[0 if present is None else present + 1 :]]
    allowed = [*later, *([] if present is None else [COMPLETED])]
    if to is None:
        return allowed[0]
    if to not in allowed:
        raise NoLaterStage(f"{to!r} is no later stage; allowed: {', '.join(allowed)}")
    return to
