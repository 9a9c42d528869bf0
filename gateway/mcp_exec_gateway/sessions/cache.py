"""Cache of the served namespaces' sessions: whose they are, and how many each caller has."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from mcp_exec_api.constants import SESSIONS
from mcp_exec_api.owner import Owner
from mcp_exec_api.sandbox_session import SessionPhase
from mcp_exec_common.broker.attestations import CLAIMED, Attestor
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey, Reflector, object_key

_EXPECTATION_SECONDS: Final = 30.0
"""Time for which a session counts that a request may have created and no watch event has shown."""
_MAX_EXPECTED: Final = 10_000
_KEPT_METADATA: Final = ("namespace", "name", "uid", "creationTimestamp", "resourceVersion")


def read_owner(session: Object, attestor: Attestor) -> Owner:
    """Return a session's owner: as the operator wrote it, or as the gateway proved it at the creation."""
    metadata, status = session["metadata"], session.get("status") or {}
    is_observed = bool(status.get("ownerDigest"))
    caller = str(status.get("caller") or "") if is_observed else attestor.read_caller(session)
    user = (session.get("spec") or {}).get("user") or ""
    return Owner(
        namespace=metadata.get("namespace", ""), caller="" if caller.startswith(CLAIMED) else caller, user=user
    )


def is_live(session: Object) -> bool:
    """Return whether a session has a pod or will get one."""
    phase = (session.get("status") or {}).get("phase")
    return phase not in (SessionPhase.LOST, SessionPhase.ENDED)


@dataclass(kw_only=True)
class SessionCache:
    """Sessions by namespace and name of the object. The reflectors call `on_change`."""

    attestor: Attestor
    clock: Callable[[], float] = time.monotonic
    _sessions: dict[ObjectKey, tuple[Owner, Object]] = field(default_factory=dict, init=False)
    _expected: dict[ObjectKey, tuple[str, float]] = field(default_factory=dict, init=False)
    """Caller and time of sessions that requests name and that do not exist yet."""

    def build_reflector(self, *, kube: KubeClient, namespace: str) -> Reflector:
        """Build the reflector of one namespace's sessions, which keeps the objects here."""
        path = custom_resource_path(SESSIONS, namespace=namespace)
        return Reflector(
            kube=kube,
            path=path,
            on_change=self.on_change,
            transform=lambda session: {"metadata": {name: session["metadata"].get(name) for name in _KEPT_METADATA}},
        )

    def on_change(self, session: Object, deleted: bool) -> None:
        """Observe one change."""
        key = object_key(session)
        self._expected.pop(key, None)
        if deleted:
            self._sessions.pop(key, None)
        else:
            self._sessions[key] = (read_owner(session, self.attestor), _strip_session(session))

    def find(self, key: ObjectKey) -> Object | None:
        """Return the session, or None if it does not exist."""
        found = self._sessions.get(key)
        return None if found is None else found[1]

    def list_own(self, namespace: str, caller: str) -> list[tuple[Owner, Object]]:
        """Return the sessions of a caller, for all of its users, with their owners, ordered by name."""
        own = [
            (key, found)
            for key, found in self._sessions.items()
            if (found[0].namespace, found[0].caller) == (namespace, caller)
        ]
        return [found for _, found in sorted(own, key=lambda each: each[0])]

    def count(self, namespace: str, caller: str) -> int:
        """Return the number of a caller's live sessions, with those that are being created."""
        live = sum(1 for _, session in self.list_own(namespace, caller) if is_live(session))
        self._drop_old()
        return live + sum(1 for (space, _), (own, _) in self._expected.items() if (space, own) == (namespace, caller))

    def has(self, key: ObjectKey) -> bool:
        """Return whether a session is live, or is being created."""
        session = self.find(key)
        self._drop_old()
        return key in self._expected or (session is not None and is_live(session))

    def expect(self, key: ObjectKey, caller: str) -> None:
        """Count a session before it exists."""
        if len(self._expected) < _MAX_EXPECTED:
            self._expected.setdefault(key, (caller, self.clock()))

    def forget(self, key: ObjectKey) -> None:
        """Stop counting a session that was not created."""
        self._expected.pop(key, None)

    def _drop_old(self) -> None:
        oldest = self.clock() - _EXPECTATION_SECONDS
        for key in [key for key, (_, since) in self._expected.items() if since < oldest]:
            del self._expected[key]


def _strip_session(session: Object) -> Object:
    metadata = session["metadata"]
    return {
        "metadata": {name: metadata[name] for name in _KEPT_METADATA if name in metadata},
        "spec": session.get("spec") or {},
        "status": session.get("status") or {},
    }
