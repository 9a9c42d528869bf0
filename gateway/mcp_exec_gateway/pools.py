"""The pools of the served namespaces, as far as a new execution must fit them."""

from dataclasses import dataclass, field

from mcp_exec_api.kube import Kube, Object, custom_path
from mcp_exec_api.names import MAX_TIMEOUT_SECONDS, POOLS
from mcp_exec_api.reflector import Key, Reflector, key_of


@dataclass(kw_only=True)
class Pools:
    """The longest time-out of each pool. `on_change` is called by the reflectors."""

    _timeouts: dict[Key, int] = field(default_factory=dict, init=False)

    def reflector(self, *, kube: Kube, namespace: str) -> Reflector:
        """What feeds this with one namespace's pools."""
        path = custom_path(POOLS, namespace=namespace)
        return Reflector(kube=kube, path=path, on_change=self.on_change, transform=_lean)

    def on_change(self, pool: Object, deleted: bool) -> None:
        """Takes note of one change."""
        if deleted:
            self._timeouts.pop(key_of(pool), None)
        else:
            seconds = (pool.get("spec") or {}).get("maxTimeoutSeconds", MAX_TIMEOUT_SECONDS)
            self._timeouts[key_of(pool)] = int(seconds)

    def max_timeout_seconds(self, namespace: str, name: str) -> int | None:
        """The longest time-out that the pool allows, or None where there is no such pool."""
        return self._timeouts.get((namespace, name))

    def names(self, namespace: str) -> list[str]:
        """The pools of a namespace, in order."""
        return sorted(name for space, name in self._timeouts if space == namespace)


def _lean(pool: Object) -> Object:
    metadata = pool["metadata"]
    return {"metadata": {"namespace": metadata.get("namespace", ""), "name": metadata["name"]}}
