"""Pools, sessions and rollouts at the API server, where a session is named as its object.

Their models are imported by the functions that need them: importing all takes longer than most commands.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel, ValidationError

from mcp_exec_api.code_execution import read_created_at
from mcp_exec_api.constants import ACCOUNT_PREFIX, POOLS, ROLLOUTS, SESSIONS
from mcp_exec_client.cli.backends.backend import NOT_OBSERVED, RolloutAction
from mcp_exec_client.cli.exit_codes import CommandError, ExitCode
from mcp_exec_client.cli.options import Object
from mcp_exec_common.kube.client import KubeClient, custom_resource_path, resource_path
from mcp_exec_common.kube.errors import ApiError

_MAX_LISTED: Final = 5000
_POOL_SPEC: Final = ("language", "maxTimeoutSeconds", "maxPods", "maxQueued")
_POOL_STATUS: Final = ("warm", "starting", "busy", "queued", "python", "libraries")
_MAX_NAMED: Final = 10
_ATTEMPTS: Final = 8
_AUTHENTICATION: Final = "authentication.k8s.io/v1"


@dataclass(kw_only=True)
class ClusterResources:
    """Pools, sessions and rollouts of one namespace. All methods raise ApiError."""

    kube: KubeClient
    namespace: str

    async def list_pools(self) -> list[Object]:
        """Return the namespace's pools, ordered by name."""
        return await self._list(POOLS, _build_pool_view)

    async def is_served(self) -> bool:
        """Return whether an operator has observed a pool of the namespace. True without the right to list pools."""
        pools = await self._list_reduced(self.namespace)
        return pools is None or any(pool["observed"] for pool in pools)

    async def find_served(self) -> list[str]:
        """Return the first namespaces with pools that an operator has observed; none without the right to list."""
        pools = await self._list_reduced(None) or ()
        return sorted({pool["namespace"] for pool in pools if pool["observed"]})[:_MAX_NAMED]

    async def list_sessions(self, *, user: str | None) -> list[Object]:
        """Return the namespace's sessions, of all users or of one, ordered by name."""
        return await self._list(
            SESSIONS, build_session_view, lambda session: user in (None, (session.get("spec") or {}).get("user"))
        )

    async def get_session(self, name: str, *, user: str | None) -> Object:
        """Return a session."""
        return build_session_view(await self.kube.get(await self._find_session_path(name, user)))

    async def reset_session(self, name: str, *, user: str | None) -> Object:
        """Request that a session starts afresh, and return it."""

        def build_change(session: Object) -> Object:
            return {"resets": int((session.get("spec") or {}).get("resets") or 0) + 1}

        return build_session_view(await self.change(await self._find_session_path(name, user), build_change))

    async def delete_session(self, name: str, *, user: str | None) -> None:
        """End a session and delete it."""
        path = await self._find_session_path(name, user)
        session = await self.kube.get(path)
        await self.kube.delete(path, uid=session["metadata"]["uid"])

    async def list_rollouts(self) -> list[Object]:
        """Return the namespace's rollouts, ordered by name."""
        return await self._list(ROLLOUTS, build_rollout_view)

    async def get_rollout(self, name: str) -> Object:
        """Return a rollout."""
        return build_rollout_view(await self.kube.get(self.path(ROLLOUTS, name)))

    async def steer_rollout(self, name: str, action: RolloutAction, *, to: str | None = None) -> Object:
        """Promote, pause, resume or abort a rollout that has not ended, and return it. Raises CommandError, too."""

        from mcp_exec_api.rollout_status import RolloutPhase

        ended = [str(phase) for phase in RolloutPhase if phase.is_final]

        def build_change(rollout: Object) -> Object:
            phase = (rollout.get("status") or {}).get("phase")
            if phase in ended:
                raise CommandError(f"rollout {name} has ended: it is {phase}; create another one", ExitCode.REFUSED)
            return _build_rollout_change(rollout, action, to)

        return build_rollout_view(await self.change(self.path(ROLLOUTS, name), build_change))

    def path(self, plural: str, name: str | None = None) -> str:
        """Return the path of a kind of objects in the namespace, or of one of them."""
        return custom_resource_path(plural, namespace=self.namespace, name=name)

    async def change(self, path: str, build_change: Callable[[Object], Object]) -> Object:
        """Change the spec of an object, again if others changed the object meanwhile, and return it."""
        for attempt in range(_ATTEMPTS):
            item = await self.kube.get(path)
            version = {"resourceVersion": item["metadata"]["resourceVersion"]}
            try:
                return await self.kube.patch(path, {"metadata": version, "spec": build_change(item)})
            except ApiError as error:
                if error.code != 409 or attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def find_username(self) -> str | None:
        """Return the own username, which admission policies require; None before Kubernetes 1.28, which has none."""
        path = resource_path("selfsubjectreviews", group=_AUTHENTICATION)
        try:
            answer = await self.kube.create(path, {"apiVersion": _AUTHENTICATION, "kind": "SelfSubjectReview"})
        except ApiError as error:
            if error.code in (403, 404):
                return None
            raise
        return str(((answer.get("status") or {}).get("userInfo") or {}).get("username") or "") or None

    async def _find_session_path(self, name: str, user: str | None) -> str:
        """Return the path of the account's own session; only a user's has another name than its object."""
        if not user:
            return self.path(SESSIONS, name)
        from mcp_exec_api.files import Owner

        username = await self.find_username()
        owner = Owner(namespace=self.namespace, caller=f"{ACCOUNT_PREFIX}{username}" if username else "", user=user)
        return self.path(SESSIONS, owner.qualify(name))

    async def _list(
        self, plural: str, build_view: Callable[[Object], Object], accept: Callable[[Object], bool] = lambda _: True
    ) -> list[Object]:
        """Return the accepted objects in the form of the gateway's responses, ordered by name."""
        found: list[Object] = []

        def take(item: Object) -> None:
            if len(found) < _MAX_LISTED and accept(item):
                found.append(build_view(item))

        await self.kube.scan(self.path(plural), take)
        return sorted(found, key=lambda item: str(item["name"]))

    async def _list_reduced(self, namespace: str | None) -> list[Object] | None:
        """Return pools as _reduce_pool does, or None without the right to list them."""
        try:
            path = custom_resource_path(POOLS, namespace=namespace)
            return (await self.kube.list(path, transform=_reduce_pool))[0]
        except ApiError as error:
            if error.code == 403:
                return None
            raise


def _build_pool_view(pool: Object) -> Object:
    """Return a pool in the form of the gateway's responses."""
    spec, status = pool.get("spec") or {}, pool.get("status") or {}
    view = {"name": pool["metadata"]["name"], "runtime": spec.get("runtimeClassName")}
    view |= {name: spec.get(name) for name in _POOL_SPEC} | {name: status.get(name) for name in _POOL_STATUS}
    return {name: value for name, value in view.items() if value is not None}


def _reduce_pool(pool: Object) -> Object:
    conditions = (pool.get("status") or {}).get("conditions") or []
    reasons = [each.get("reason") for each in conditions if each.get("type") == "Ready"]
    return {
        "namespace": str(pool["metadata"].get("namespace", "")),
        "observed": bool(reasons) and NOT_OBSERVED not in reasons,
    }


def build_session_view(session: Object) -> Object:
    """Return a session in the form of the gateway's responses, with the name of its object."""
    metadata, spec, status = session["metadata"], session.get("spec") or {}, session.get("status") or {}
    view = {
        "name": metadata["name"],
        "namespace": metadata.get("namespace", ""),
        "pool": (spec.get("poolRef") or {}).get("name", "default"),
        "phase": status.get("phase") or "Pending",
        "createdAt": read_created_at(session),
    }
    from mcp_exec_api.wire.sessions import Session

    return _add_fields(view, Session, {**status, **spec})


def build_rollout_view(rollout: Object) -> Object:
    """Return a rollout in the form of the gateway's responses."""
    from mcp_exec_api.wire.rollouts import Rollout, StageSummary

    metadata, spec, status = rollout["metadata"], rollout.get("spec") or {}, rollout.get("status") or {}
    stages = [
        _add_fields({"name": stage["name"], "users": len(stage.get("users") or ())}, StageSummary, stage)
        for stage in spec.get("stages") or ()
    ]
    fields = {**status, "measures": status.get("arms"), "arms": None, **spec, "stages": stages}
    view = {
        "name": metadata["name"],
        "namespace": metadata.get("namespace", ""),
        "phase": status.get("phase") or "Pending",
    }
    return _add_fields(view, Rollout, fields)


def _add_fields(view: Object, model: type[BaseModel], fields: Object) -> Object:
    """Return a view with the other fields that the model of the gateway's response has, without empty ones."""
    names = [field.alias or name for name, field in model.model_fields.items()]
    return view | {name: fields[name] for name in names if name not in view and fields.get(name) not in (None, "", [])}


def _build_rollout_change(rollout: Object, action: RolloutAction, to: str | None) -> Object:
    if action == "abort":
        return {"killSwitch": True}
    if action != "promote":
        return {"paused": action == "pause"}
    from mcp_exec_api.execution_rollout import ExecutionRolloutSpec
    from mcp_exec_common.rollouts.progress import NoLaterStage, choose_promotion

    try:
        spec = ExecutionRolloutSpec.model_validate(rollout.get("spec") or {})
        return {"promotedTo": choose_promotion(spec, (rollout.get("status") or {}).get("stage"), to)}
    except (NoLaterStage, ValidationError) as error:
        raise CommandError(f"the rollout can't be promoted: {error}", ExitCode.REFUSED) from error
