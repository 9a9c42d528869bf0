"""Rollouts at the API server, with the right to patch them."""

from typing import Final

from pydantic import ValidationError

from mcp_exec_api.constants import ROLLOUTS
from mcp_exec_api.execution_rollout import ExecutionRolloutSpec
from mcp_exec_api.rollout_status import RolloutPhase
from mcp_exec_client.cli.backends.backend import RolloutAction
from mcp_exec_client.cli.exit_codes import ExitCode
from mcp_exec_client.cli.options import CommandError, Object
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.rollouts.promotion import NoLaterStage, choose_promotion

_MAX_LISTED: Final = 5000
_ATTEMPTS: Final = 8
_SPEC: Final = ("control", "paused", "killSwitch", "arms")
_STATUS: Final = ("phase", "stage", "since", "endedAt", "message", "exposure", "guards", "conditions")
_STAGE: Final = ("name", "percent", "arm", "durationSeconds", "manual")
_ENDED: Final = [str(phase) for phase in RolloutPhase if phase.is_final]


async def list_rollouts(kube: KubeClient, *, namespace: str) -> list[Object]:
    """Return the rollouts of a namespace, ordered by name. Raises ApiError."""
    found: list[Object] = []

    def take(rollout: Object) -> None:
        if len(found) < _MAX_LISTED:
            found.append(build_rollout_view(rollout))

    await kube.scan(custom_resource_path(ROLLOUTS, namespace=namespace), take)
    return sorted(found, key=lambda item: str(item["name"]))


async def get_rollout(kube: KubeClient, name: str, *, namespace: str) -> Object:
    """Return a rollout. Raises ApiError."""
    return build_rollout_view(await kube.get(custom_resource_path(ROLLOUTS, namespace=namespace, name=name)))


async def steer_rollout(
    kube: KubeClient, name: str, action: RolloutAction, *, namespace: str, to: str | None
) -> Object:
    """Promote, pause, resume or abort a rollout that has not ended, and return it. Raises ApiError, CommandError."""
    path = custom_resource_path(ROLLOUTS, namespace=namespace, name=name)
    for attempt in range(_ATTEMPTS):
        rollout = await kube.get(path)
        phase = (rollout.get("status") or {}).get("phase")
        if phase in _ENDED:
            raise CommandError(f"rollout {name} has ended: it is {phase}; create another one", ExitCode.REFUSED)
        change = _build_change(rollout, action, to)
        version = {"resourceVersion": rollout["metadata"]["resourceVersion"]}
        try:
            return build_rollout_view(await kube.patch(path, {"metadata": version, "spec": change}))
        except ApiError as error:
            if error.code != 409 or attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable: the last attempt returns or raises")


def build_rollout_view(rollout: Object) -> Object:
    """Return a rollout in the form of the gateway's responses."""
    metadata, spec, status = rollout["metadata"], rollout.get("spec") or {}, rollout.get("status") or {}
    stages = [
        {**{name: stage[name] for name in _STAGE if name in stage}, "users": len(stage.get("users") or ())}
        for stage in spec.get("stages") or ()
    ]
    optional = {name: spec.get(name) for name in _SPEC} | {name: status.get(name) for name in _STATUS}
    optional |= {"measures": status.get("arms"), "stages": stages}
    return {
        "name": metadata["name"],
        "namespace": metadata.get("namespace", ""),
        "phase": "Pending",
        **{name: value for name, value in optional.items() if value not in (None, "", [])},
    }


def _build_change(rollout: Object, action: RolloutAction, to: str | None) -> Object:
    if action == "abort":
        return {"killSwitch": True}
    if action != "promote":
        return {"paused": action == "pause"}
    try:
        spec = ExecutionRolloutSpec.model_validate(rollout.get("spec") or {})
        return {"promotedTo": choose_promotion(spec, (rollout.get("status") or {}).get("stage"), to)}
    except (NoLaterStage, ValidationError) as error:
        raise CommandError(f"the rollout can't be promoted: {error}", ExitCode.REFUSED) from error
