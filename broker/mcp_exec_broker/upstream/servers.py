"""The ToolServers that are served, as their objects say."""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from pydantic import ValidationError

from mcp_exec_api.constants import TOOL_SERVERS
from mcp_exec_api.meta import field_errors
from mcp_exec_api.tool_server import ToolServerSpec, Workload
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey, Reflector, object_key
from mcp_exec_tools.names import identifier

_CONNECTION: Final[dict[str, Any]] = {
    "url": True,
    "headers": True,
    "user_headers": True,
    "oauth": True,
    "stdio": {"image", "command", "env"},
}
"""Where a server is, and as whom it is called: fields of the spec."""


@dataclass(frozen=True, kw_only=True)
class ToolServer:
    """One ToolServer, as it was last seen."""

    namespace: str
    name: str
    uid: str
    generation: int
    spec: ToolServerSpec | None
    """What it is; none where it can't be used."""
    wrong: str = ""
    """Why it can't be used."""
    workload: Workload | None = None
    """How the pod of a stdio server is."""
    status: Object = field(default_factory=dict, compare=False, repr=False)
    """Its status as stored."""

    @classmethod
    def of(cls, item: Object) -> "ToolServer":
        """From its object."""
        meta, status = item["metadata"], item.get("status") or {}
        spec, wrong, workload = None, "", None
        try:
            spec = ToolServerSpec.model_validate(item.get("spec") or {})
            workload = Workload.model_validate(status["workload"]) if status.get("workload") else None
        except ValidationError as error:
            wrong = "; ".join(f"{found.field}: {found.message}" for found in field_errors(error))[:1000]
        return cls(
            namespace=meta["namespace"],
            name=meta["name"],
            uid=str(meta.get("uid", "")),
            generation=int(meta.get("generation", 1)),
            spec=spec,
            wrong=wrong,
            workload=workload,
            status=status,
        )

    @property
    def key(self) -> ObjectKey:
        """Namespace and name."""
        return self.namespace, self.name

    @property
    def is_personal(self) -> bool:
        """Whether each user has a connection of their own."""
        return self.spec is not None and bool(self.spec.user_headers)

    @cached_property
    def connection_hash(self) -> str:
        """What tells this object, and the server that its spec leads to, from others; other policies change nothing.

        32 hexadecimal digits. Secrets count by their names, not by what is in them.
        """
        spec = self.spec.model_dump(mode="json", include=_CONNECTION, exclude_none=True) if self.spec else None
        text = json.dumps([self.namespace, self.name, self.uid, spec], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def is_like(self, other: "ToolServer") -> bool:
        """Whether all that decides how it is called is the same."""
        return (self.uid, self.generation, self.workload) == (other.uid, other.generation, other.workload)


@dataclass(kw_only=True, eq=False)
class ToolServerCache:
    """All ToolServers of the namespaces. `on_change(before, after)` is called in order and must not block."""

    on_change: Callable[[ToolServer | None, ToolServer | None], None] = lambda before, after: None
    _servers: dict[ObjectKey, ToolServer] = field(default_factory=dict)
    _spellings: dict[ObjectKey, ObjectKey] = field(default_factory=dict)
    """By namespace and what Python calls it."""

    def reflector(self, *, kube: KubeClient, namespace: str) -> Reflector:
        """What follows one namespace."""
        return Reflector(
            kube=kube,
            path=custom_resource_path(TOOL_SERVERS, namespace=namespace),
            on_change=self.take_in,
            transform=lambda item: {"metadata": {name: item["metadata"].get(name) for name in ("namespace", "name")}},
        )

    def take_in(self, item: Object, deleted: bool) -> None:
        """Takes in an object that changed, or is gone."""
        key = object_key(item)
        before = self._servers.pop(key, None)
        after = None if deleted else ToolServer.of(item)
        if after is not None:
            self._servers[key] = after
        spelling = (key[0], identifier(key[1]))
        if deleted and self._spellings.get(spelling) == key:
            del self._spellings[spelling]
        elif not deleted:
            self._spellings.setdefault(spelling, key)
        self.on_change(before, after)

    def get(self, namespace: str, name: str) -> ToolServer | None:
        """The server of this name, or that Python calls so."""
        found = self._servers.get((namespace, name))
        return found or self._servers.get(self._spellings.get((namespace, name), ("", "")))

    def of(self, namespace: str) -> list[ToolServer]:
        """All of a namespace, by name."""
        return sorted((each for each in self if each.namespace == namespace), key=lambda each: each.name)

    def __iter__(self) -> Iterator[ToolServer]:
        return iter(list(self._servers.values()))
