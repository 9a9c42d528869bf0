"""The pools of the served namespaces, as far as a new execution must fit them."""

import math
from dataclasses import dataclass, field
from typing import Final, Self

from pydantic import ValidationError

from mcp_exec_api.code_findings import CodeCheck
from mcp_exec_api.constants import DEFAULT_MAX_QUEUED, MAX_TIMEOUT_SECONDS, POOLS
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey, Reflector, object_key
from mcp_exec_gateway.http.problems import too_many

_RETRY_SECONDS: Final = 5
"""When to ask again where nothing is known of how fast a full queue moves."""
_LONGEST_RETRY_SECONDS: Final = 60
_TENTH: Final = 0.1


@dataclass(frozen=True, kw_only=True)
class PoolFacts:
    """What is known of one pool."""

    max_timeout_seconds: int
    max_queued: int
    queued: int
    """Executions that wait for a pod, as the operator said last: at most a second or so ago."""
    expected_wait_seconds: float | None
    code_check: CodeCheck

    @classmethod
    def of(cls, pool: Object) -> Self:
        """From the pool's object."""
        spec, status = pool.get("spec") or {}, pool.get("status") or {}
        wait = status.get("expectedWaitSeconds")
        return cls(
            max_timeout_seconds=int(spec.get("maxTimeoutSeconds", MAX_TIMEOUT_SECONDS)),
            max_queued=int(spec.get("maxQueued", DEFAULT_MAX_QUEUED)),
            queued=int(status.get("queued", 0)),
            expected_wait_seconds=None if wait is None else float(wait),
            code_check=_code_check(spec),
        )

    @property
    def retry_after(self) -> int:
        """Seconds after which a tenth of a full queue is served, so that it has room for those that come back."""
        if self.expected_wait_seconds is None:
            return _RETRY_SECONDS
        return min(max(math.ceil(self.expected_wait_seconds * _TENTH), 1), _LONGEST_RETRY_SECONDS)


@dataclass(kw_only=True)
class Pools:
    """What is known of each pool. `on_change` is called by the reflectors."""

    _facts: dict[ObjectKey, PoolFacts] = field(default_factory=dict, init=False)

    def reflector(self, *, kube: KubeClient, namespace: str) -> Reflector:
        """What feeds this with one namespace's pools."""
        path = custom_resource_path(POOLS, namespace=namespace)
        return Reflector(kube=kube, path=path, on_change=self.on_change, transform=_lean)

    def on_change(self, pool: Object, deleted: bool) -> None:
        """Takes note of one change."""
        if deleted:
            self._facts.pop(object_key(pool), None)
        else:
            self._facts[object_key(pool)] = PoolFacts.of(pool)

    def max_timeout_seconds(self, namespace: str, name: str) -> int | None:
        """The longest time-out that the pool allows, or None where there is no such pool."""
        facts = self._facts.get((namespace, name))
        return None if facts is None else facts.max_timeout_seconds

    def code_check(self, namespace: str, name: str) -> CodeCheck:
        """What the pool looks for in code; nothing where there is no such pool."""
        facts = self._facts.get((namespace, name))
        return CodeCheck() if facts is None else facts.code_check

    def check_queue(self, namespace: str, name: str) -> None:
        """Raises Problem where as many executions wait for a pod as may, so that one more would fail."""
        facts = self._facts.get((namespace, name))
        if facts is None or facts.queued < facts.max_queued:
            return
        wait = facts.expected_wait_seconds
        detail = f"{facts.queued} executions wait for a pod of pool {name}, of {facts.max_queued} that may"
        about = "" if wait is None else f"; the last of them has to wait about {max(wait, 1):.0f} s"
        raise too_many(detail + about, kind="queue-full", retry_after=facts.retry_after)

    def names(self, namespace: str) -> list[str]:
        """The pools of a namespace, in order."""
        return sorted(name for space, name in self._facts if space == namespace)


def _code_check(spec: Object) -> CodeCheck:
    try:
        return CodeCheck.model_validate(spec.get("codeCheck") or {})
    except ValidationError:
        return CodeCheck()  # the operator runs nothing in a pool whose spec is wrong


def _lean(pool: Object) -> Object:
    metadata = pool["metadata"]
    return {"metadata": {"namespace": metadata.get("namespace", ""), "name": metadata["name"]}}
