"""Pools, sessions and rollouts at the API server, where a session is named as its object."""

from collections.abc import Callable
from typing import Final

from pydantic import ValidationError

from mcp_exec_api.constants import POOLS, ROLLOUTS, SESSIONS
from mcp_exec_api.execution_rollout import ExecutionRolloutSpec
from mcp_exec_api.execution_state import read_created_at
from mcp_exec_api.owner import Owner
from mcp_exec_api.rollout_status import RolloutPhase
from mcp_exec_client.cli.backends.backend import NOT_OBSERVED, RolloutAction
from mcp_exec_client.cli.options import CommandError, ExitCode, Object
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.rollouts.progress import NoLaterStage, choose_promotion

_MAX_LISTED: Final = 5000
_POOL_SPEC: Final = ("maxTimeoutSeconds", "maxPods", "maxQueued")
_POOL_STATUS: Final = ("warm", "starting", "busy", "queued", "python", "libraries")
_MAX_NAMED: Final = 10
_ATTEMPTS: Final = 8
_SESSION_STATUS: Final = (
    "phase",
    "reason",
    "caller",
    "executions",
    "queued",
    "memoryBytes",
    "podName",
    "nodeName",
    "startedAt",
    "lastUsedAt",
    "expiresAt",
    "endedAt",
    "conditions",
)
_SESSION_SPEC: Final = ("user", "description", "idleTimeoutSeconds", "maxAgeSeconds", "maxQueued", "resets")
_ROLLOUT_SPEC: Final = ("control", "paused", "killSwitch", "arms")
_ROLLOUT_STATUS: Final = ("phase", "stage", "since", "endedAt", "message", "exposure", "guards", "conditions")
_STAGE: Final = ("name", "percent", "arm", "durationSeconds", "manual")
_ENDED: Final = [str(phase) for phase in RolloutPhase if phase.is_final]


async def list_pools(kube: KubeClient, *, namespace: str) -> list[Object]:
    """Return the pools of a namespace, ordered by name. Raises ApiError."""
    return await _list(kube, POOLS, namespace, _build_pool_view)


def _build_pool_view(pool: Object) -> Object:
    """Return a pool in the form of the gateway's responses."""
    spec, status = pool.get("spec") or {}, pool.get("status") or {}
    view = {"name": pool["metadata"]["name"], "runtime": spec.get("runtimeClassName")}
    view |= {name: spec.get(name) for name in _POOL_SPEC} | {name: status.get(name) for name in _POOL_STATUS}
    return {name: value for name, value in view.items() if value is not None}


async def is_served(kube: KubeClient, namespace: str) -> bool:
    """Return whether a namespace has a pool that an operator has observed. True without the right to list pools."""
    pools = await _list_reduced(kube, namespace)
    return pools is None or any(pool["observed"] for pool in pools)


async def find_served(kube: KubeClient) -> list[str]:
    """Return the first namespaces with pools that an operator has observed; none without the right to list them."""
    pools = await _list_reduced(kube, None) or ()
    return sorted({pool["namespace"] for pool in pools if pool["observed"]})[:_MAX_NAMED]


async def _list_reduced(kube: KubeClient, namespace: str | None) -> list[Object] | None:
    """Return pools as _reduce_pool does, or None without the right to list them."""
    try:
        return (await kube.list(custom_resource_path(POOLS, namespace=namespace), transform=_reduce_pool))[0]
    except ApiError as error:
        if error.code == 403:
            return None
        raise


def _reduce_pool(pool: Object) -> Object:
    conditions = (pool.get("status") or {}).get("conditions") or []
    reasons = [each.get("reason") for each in conditions if each.get("type") == "Ready"]
    return {
        "namespace": str(pool["metadata"].get("namespace", "")),
        "observed": bool(reasons) and NOT_OBSERVED not in reasons,
    }


async def list_sessions(kube: KubeClient, *, namespace: str, user: str | None) -> list[Object]:
    """Return the sessions of a namespace, of all users or of one, ordered by name. Raises ApiError."""
    return await _list(
        kube,
        SESSIONS,
        namespace,
        build_session_view,
        lambda session: user in (None, (session.get("spec") or {}).get("user")),
    )


async def get_session(kube: KubeClient, name: str, *, namespace: str, user: str | None) -> Object:
    """Return a session. Raises ApiError."""
    return build_session_view(await kube.get(_session_path(namespace, name, user)))


async def reset_session(kube: KubeClient, name: str, *, namespace: str, user: str | None) -> Object:
    """Request that a session starts afresh, and return it. Raises ApiError."""

    def build_change(session: Object) -> Object:
        return {"resets": int((session.get("spec") or {}).get("resets") or 0) + 1}

    return build_session_view(await _change(kube, _session_path(namespace, name, user), build_change))


async def delete_session(kube: KubeClient, name: str, *, namespace: str, user: str | None) -> None:
    """Delete a session. Raises ApiError, also if there is none."""
    path = _session_path(namespace, name, user)
    session = await kube.get(path)
    await kube.delete(path, uid=session["metadata"]["uid"])


def build_session_view(session: Object) -> Object:
    """Return a session in the form of the gateway's responses, with the name of its object."""
    metadata, spec, status = session["metadata"], session.get("spec") or {}, session.get("status") or {}
    optional = {name: spec.get(name) for name in _SESSION_SPEC} | {name: status.get(name) for name in _SESSION_STATUS}
    return {
        "name": metadata["name"],
        "namespace": metadata.get("namespace", ""),
        "pool": (spec.get("poolRef") or {}).get("name", "default"),
        "phase": "Pending",
        "createdAt": read_created_at(session),
        **{name: value for name, value in optional.items() if value not in (None, "")},
    }


def _session_path(namespace: str, name: str, user: str | None) -> str:
    return custom_resource_path(
        SESSIONS, namespace=namespace, name=Owner(namespace=namespace, user=user or "").qualify(name)
    )


async def list_rollouts(kube: KubeClient, *, namespace: str) -> list[Object]:
    """Return the rollouts of a namespace, ordered by name. Raises ApiError."""
    return await _list(kube, ROLLOUTS, namespace, build_rollout_view)


async def get_rollout(kube: KubeClient, name: str, *, namespace: str) -> Object:
    """Return a rollout. Raises ApiError."""
    return build_rollout_view(await kube.get(custom_resource_path(ROLLOUTS, namespace=namespace, name=name)))


async def steer_rollout(
    kube: KubeClient, name: str, action: RolloutAction, *, namespace: str, to: str | None
) -> Object:
    """Promote, pause, resume or abort a rollout that has not ended, and return it. Raises ApiError, CommandError."""

    def build_change(rollout: Object) -> Object:
        phase = (rollout.get("status") or {}).get("phase")
        if phase in _ENDED:
            raise CommandError(f"rollout {name} has ended: it is {phase}; create another one", ExitCode.REFUSED)
        return _build_rollout_change(rollout, action, to)

    path = custom_resource_path(ROLLOUTS, namespace=namespace, name=name)
    return build_rollout_view(await _change(kube, path, build_change))


def build_rollout_view(rollout: Object) -> Object:
    """Return a rollout in the form of the gateway's responses."""
    metadata, spec, status = rollout["metadata"], rollout.get("spec") or {}, rollout.get("status") or {}
    stages = [
        {**{name: stage[name] for name in _STAGE if name in stage}, "users": len(stage.get("users") or ())}
        for stage in spec.get("stages") or ()
    ]
    optional = {name: spec.get(name) for name in _ROLLOUT_SPEC} | {name: status.get(name) for name in _ROLLOUT_STATUS}
    optional |= {"measures": status.get("arms"), "stages": stages}
    return {
        "name": metadata["name"],
        "namespace": metadata.get("namespace", ""),
        "phase": "Pending",
        **{name: value for name, value in optional.items() if value not in (None, "", [])},
    }


def _build_rollout_change(rollout: Object, action: RolloutAction, to: str | None) -> Object:
    if action == "abort":
        return {"killSwitch": True}
    if action != "promote":
        return {"paused": action == "pause"}
    try:
        spec = ExecutionRolloutSpec.model_validate(rollout.get("spec") or {})
        return {"promotedTo": choose_promotion(spec, (rollout.get("status") or {}).get("stage"), to)}
    except (NoLaterStage, ValidationError) as error:
        raise CommandError(f"the rollout can't be promoted: {error}", ExitCode.REFUSED) from error


async def _list(
    kube: KubeClient,
    plural: str,
    namespace: str,
    build_view: Callable[[Object], Object],
    accept: Callable[[Object], bool] = lambda _: True,
) -> list[Object]:
    """Return the accepted objects of a namespace in the form of the gateway's responses, ordered by name."""
    found: list[Object] = []

    def take(item: Object) -> None:
        if len(found) < _MAX_LISTED and accept(item):
            found.append(build_view(item))

    await kube.scan(custom_resource_path(plural, namespace=namespace), take)
    return sorted(found, key=lambda item: str(item["name"]))


async def _change(kube: KubeClient, path: str, build_change: Callable[[Object], Object]) -> Object:
    """Change the spec of an object, again if others changed it meanwhile, and return it."""
    for attempt in range(_ATTEMPTS):
        item = await kube.get(path)
        version = {"resourceVersion": item["metadata"]["resourceVersion"]}
        try:
            return await kube.patch(path, {"metadata": version, "spec": build_change(item)})
        except ApiError as error:
            if error.code != 409 or attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable: the last attempt returns or raises")
