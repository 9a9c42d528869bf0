"""What approvers do with a rollout: promote, pause, resume, abort."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mcp_exec_api.constants import ROLLOUTS
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.rollouts.promotion import NoLaterStage, choose_promotion
from mcp_exec_gateway.auth.callers import Caller
from mcp_exec_gateway.http.problems import HttpProblem, invalid_field, translate_refusal, unavailable
from mcp_exec_gateway.rollouts.cache import CachedRollout, RolloutCache

_MAX_ATTEMPTS: Final = 8


@dataclass(frozen=True, kw_only=True)
class RolloutSteering:
    """Changes of rollouts. The operator follows them; an abort holds at once at the gateway that wrote it."""

    kube: KubeClient
    cache: RolloutCache

    async def promote(self, name: str, to: str | None, *, caller: Caller) -> CachedRollout:
        """Request that a stage begins, by default the next one. Raises HttpProblem."""
        return await self._change(name, lambda rollout: {"promotedTo": _choose_stage(rollout, to)}, caller=caller)

    async def set_paused(self, name: str, paused: bool, *, caller: Caller) -> CachedRollout:
        """Pause a rollout or resume it. Raises HttpProblem."""
        return await self._change(name, lambda _: {"paused": paused}, caller=caller)

    async def abort(self, name: str, *, caller: Caller) -> CachedRollout:
        """Give every unit the control arm, for good. Raises HttpProblem."""
        return await self._change(name, lambda _: {"killSwitch": True}, caller=caller)

    async def _change(self, name: str, build: Callable[[CachedRollout], Object], *, caller: Caller) -> CachedRollout:
        """Change the spec of a rollout that has not ended, as it is now."""
        self.cache.get(caller.namespace, name)
        path = custom_resource_path(ROLLOUTS, namespace=caller.namespace, name=name)
        for _ in range(_MAX_ATTEMPTS):
            try:
                stored = await self.kube.get(path)
                rollout = CachedRollout.from_object(stored)
                _check_not_ended(rollout)
                # with the version that was read, the second of two concurrent changes gets a 409 and reads again
                version = {"resourceVersion": stored["metadata"]["resourceVersion"]}
                changed = await self.kube.patch(path, {"metadata": version, "spec": build(rollout)})
            except ApiError as error:
                if error.code == 409:
                    continue
                if error.code == 404:
                    detail = f"there is no rollout {name[:253]} in namespace {caller.namespace}"
                    raise HttpProblem("not-found", 404, detail) from error
                raise translate_refusal(error, kind="ExecutionRollout", namespace=caller.namespace) from error
            self.cache.on_change(changed, False)  # before the watch brings it: the next assignment counts on it
            return CachedRollout.from_object(changed)
        raise unavailable(f"rollout {name} changed during each of {_MAX_ATTEMPTS} attempts")


def _check_not_ended(rollout: CachedRollout) -> None:
    """Raise HttpProblem, a 409, if the rollout has ended."""
    if rollout.position.phase.is_final:
        detail = f"rollout {rollout.name} has ended: it is {rollout.position.phase}; create another one"
        raise HttpProblem("conflict", 409, detail)


def _choose_stage(rollout: CachedRollout, to: str | None) -> str:
    """Return the stage to promote to. Raises HttpProblem: a 422 if it is not a later one, a 409 without a spec."""
    try:
        return choose_promotion(rollout.require_spec(), rollout.position.stage, to)
    except NoLaterStage as error:
        raise invalid_field("to", str(error)) from error
