"""Sessions at the API server. There a session is named as its object, and those of all owners are listed."""

from typing import Final

from mcp_exec_api.constants import SESSIONS
from mcp_exec_api.execution_state import read_created_at
from mcp_exec_api.owner import Owner
from mcp_exec_client.cli.options import Object
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.errors import ApiError

_MAX_LISTED: Final = 5000
_ATTEMPTS: Final = 8
_STATUS: Final = (
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
_SPEC: Final = ("user", "description", "idleTimeoutSeconds", "maxAgeSeconds", "maxQueued", "resets")


async def list_sessions(kube: KubeClient, *, namespace: str, user: str | None) -> list[Object]:
    """Return the sessions of a namespace, of all users or of one, ordered by name. Raises ApiError."""
    found: list[Object] = []

    def take(session: Object) -> None:
        if len(found) < _MAX_LISTED and user in (None, (session.get("spec") or {}).get("user")):
            found.append(build_session_view(session))

    await kube.scan(custom_resource_path(SESSIONS, namespace=namespace), take)
    return sorted(found, key=lambda item: str(item["name"]))


async def get_session(kube: KubeClient, name: str, *, namespace: str, user: str | None) -> Object:
    """Return a session. Raises ApiError."""
    return build_session_view(await kube.get(_path(namespace, name, user)))


async def reset_session(kube: KubeClient, name: str, *, namespace: str, user: str | None) -> Object:
    """Request that a session starts afresh, and return it. Raises ApiError."""
    path = _path(namespace, name, user)
    for attempt in range(_ATTEMPTS):
        session = await kube.get(path)
        version = {"resourceVersion": session["metadata"]["resourceVersion"]}
        resets = int((session.get("spec") or {}).get("resets") or 0) + 1
        try:
            return build_session_view(await kube.patch(path, {"metadata": version, "spec": {"resets": resets}}))
        except ApiError as error:
            if error.code != 409 or attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable: the last attempt returns or raises")


async def delete_session(kube: KubeClient, name: str, *, namespace: str, user: str | None) -> None:
    """Delete a session. Raises ApiError, also if there is none."""
    path = _path(namespace, name, user)
    session = await kube.get(path)
    await kube.delete(path, uid=session["metadata"]["uid"])


def build_session_view(session: Object) -> Object:
    """Return a session in the form of the gateway's responses, with the name of its object."""
    metadata, spec, status = session["metadata"], session.get("spec") or {}, session.get("status") or {}
    optional = {name: spec.get(name) for name in _SPEC} | {name: status.get(name) for name in _STATUS}
    return {
        "name": metadata["name"],
        "namespace": metadata.get("namespace", ""),
        "pool": (spec.get("poolRef") or {}).get("name", "default"),
        "phase": "Pending",
        "createdAt": read_created_at(session),
        **{name: value for name, value in optional.items() if value not in (None, "")},
    }


def _path(namespace: str, name: str, user: str | None) -> str:
    return custom_resource_path(
        SESSIONS, namespace=namespace, name=Owner(namespace=namespace, user=user or "").qualify(name)
    )
