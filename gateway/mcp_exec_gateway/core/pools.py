"""Pools of executions: a cache of their specs, and what their pods offer."""

import math
from dataclasses import dataclass, field
from typing import Final, Self

from pydantic import ValidationError

from mcp_exec_api.code_execution import PoolRef
from mcp_exec_api.code_findings import CodeCheck
from mcp_exec_api.constants import (
    DEFAULT_LANGUAGE,
    DEFAULT_MAX_QUEUED,
    DEFAULT_MAX_TIMEOUT_SECONDS,
    POOLS,
    SANDBOX_CONTAINER,
    Language,
    find_language,
)
from mcp_exec_api.meta import FieldError, parse_quantity
from mcp_exec_api.sandbox_pool import PoolTools, Resources, SandboxPoolSpec, format_languages
from mcp_exec_api.wire.stats import PoolCapacity
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey, Reflector, object_key
from mcp_exec_common.supervisor.protocol import SandboxLibraries
from mcp_exec_gateway.core.auth.callers import Caller
from mcp_exec_gateway.core.http.problems import HttpProblem, invalid_field, too_many
from mcp_exec_tools.prompt import describe_libraries

DEFAULT_POOL: Final = PoolRef().name
"""Pool of requests that name none."""
_MAX_CONTAINERS: Final = 16
_MAX_PODS: Final[int] = SandboxPoolSpec.model_fields["max_pods"].default


def read_limits(spec: Object) -> tuple[int | None, float | None]:
    """Return memory in bytes and CPU in cores that each pod of a pool has, or None for what the spec has not validly.

    The template's container has precedence, as in the operator.
    """
    try:
        own = Resources.model_validate(spec.get("resources") or {}).limits.to_api()
        limits = {**own, **_read_template_limits(spec)}
        return int(parse_quantity(str(limits["memory"]))), float(parse_quantity(str(limits["cpu"])))
    except (ValidationError, ValueError, OverflowError):
        return None, None


def read_capacity(pool: Object) -> PoolCapacity:
    """Return what a pool offers."""
    spec, status = pool.get("spec") or {}, pool.get("status") or {}
    memory, cpus = read_limits(spec)
    image = read_libraries(status)
    counts = {name: int(status.get(name) or 0) for name in ("warm", "starting", "busy", "queued")}
    return PoolCapacity(
        name=pool["metadata"]["name"],
        language=read_language(spec),
        memory_bytes=memory,
        cpus=cpus,
        runtime=spec.get("runtimeClassName") or None,
        max_timeout_seconds=int(spec.get("maxTimeoutSeconds", DEFAULT_MAX_TIMEOUT_SECONDS)),
        max_pods=int(spec.get("maxPods", _MAX_PODS)),
        max_queued=int(spec.get("maxQueued", DEFAULT_MAX_QUEUED)),
        python=image.python if image is not None else None,
        libraries=image.libraries if image is not None else None,
        **counts,
    )


def read_language(spec: Object) -> Language:
    """Return the language of a pool's spec; the default one if the spec has none validly."""
    return find_language(spec.get("language")) or DEFAULT_LANGUAGE


def read_libraries(status: Object) -> SandboxLibraries | None:
    """Return Python and libraries of a pool's status, or None if no pod was asked yet."""
    fields = {"python": status.get("python"), "libraries": status.get("libraries") or []}
    try:
        return SandboxLibraries.model_validate(fields)
    except ValidationError:
        return None


def _read_template_limits(spec: Object) -> Object:
    """Return the limits that the template sets for the sandbox's container."""
    template = (spec.get("template") or {}).get("spec")
    containers = template.get("containers") if isinstance(template, dict) else None
    for container in (containers if isinstance(containers, list) else [])[:_MAX_CONTAINERS]:
        if isinstance(container, dict) and container.get("name") == SANDBOX_CONTAINER:
            resources = container.get("resources")
            limits = resources.get("limits") if isinstance(resources, dict) else None
            return limits if isinstance(limits, dict) else {}
    return {}


_DEFAULT_RETRY_SECONDS: Final = 5
"""Retry-After if the pool's status has no expected wait."""
_MAX_RETRY_SECONDS: Final = 60
_RETRY_SHARE: Final = 0.1
"""Share of the expected wait before a retry makes sense: a tenth of the queue is served by then."""


@dataclass(frozen=True, kw_only=True)
class CachedPool:
    """Limits and queue of one pool."""

    name: str
    max_timeout_seconds: int
    max_queued: int
    queued: int
    """Executions that wait for a pod, from the pool's status, which is up to about a second old."""
    expected_wait_seconds: float | None
    """Expected wait of the last execution in the queue."""
    code_check: CodeCheck
    capacity: PoolCapacity
    """What the pool offers, for clients."""
    tools: PoolTools
    """Tools that executions of the pool, and direct calls, may use."""

    @classmethod
    def from_object(cls, pool: Object) -> Self:
        """Read the pool's spec and status."""
        spec, status = pool.get("spec") or {}, pool.get("status") or {}
        wait = status.get("expectedWaitSeconds")
        return cls(
            name=pool["metadata"]["name"],
            max_timeout_seconds=int(spec.get("maxTimeoutSeconds", DEFAULT_MAX_TIMEOUT_SECONDS)),
            max_queued=int(spec.get("maxQueued", DEFAULT_MAX_QUEUED)),
            queued=int(status.get("queued", 0)),
            expected_wait_seconds=None if wait is None else float(wait),
            code_check=_parse_code_check(spec),
            capacity=read_capacity(pool),
            tools=_parse_tools(spec),
        )

    @property
    def language(self) -> Language:
        """Language of the code that it runs."""
        return self.capacity.language

    @property
    def retry_after(self) -> int:
        """Seconds until a full queue has room for the callers that it rejected."""
        if self.expected_wait_seconds is None:
            return _DEFAULT_RETRY_SECONDS
        return min(max(math.ceil(self.expected_wait_seconds * _RETRY_SHARE), 1), _MAX_RETRY_SECONDS)

    def check_queue(self) -> None:
        """Raise HttpProblem if the queue is full, so that one more execution would fail."""
        if self.queued < self.max_queued:
            return
        wait = self.expected_wait_seconds
        detail = f"{self.queued} executions wait for a pod of pool {self.name}, and its maxQueued is {self.max_queued}"
        expected = "" if wait is None else f"; the expected wait is {max(wait, 1):.0f} s"
        raise too_many(detail + expected, kind="queue-full", retry_after=self.retry_after)


@dataclass(kw_only=True)
class PoolCache:
    """Pools by namespace and name. The reflectors call `on_change`."""

    _pools: dict[ObjectKey, CachedPool] = field(default_factory=dict, init=False)

    def build_reflector(self, *, kube: KubeClient, namespace: str) -> Reflector:
        """Build the reflector of one namespace's pools."""
        path = custom_resource_path(POOLS, namespace=namespace)
        return Reflector(kube=kube, path=path, on_change=self.on_change, transform=_strip_pool)

    def on_change(self, pool: Object, deleted: bool) -> None:
        """Observe one change."""
        if deleted:
            self._pools.pop(object_key(pool), None)
        else:
            self._pools[object_key(pool)] = CachedPool.from_object(pool)

    def find(self, namespace: str, name: str) -> CachedPool | None:
        """Return the pool, or None if it does not exist."""
        return self._pools.get((namespace, name))

    def list_usable(self, caller: Caller) -> list[CachedPool]:
        """Return the pools that a caller may use, in alphabetical order, but that which is chosen by default first."""
        allowed, namespace = caller.limits.pools, caller.namespace
        names = [name for name in self.list_names(namespace) if allowed is None or name in allowed]
        return [self._pools[namespace, name] for name in sorted(names, key=lambda name: name != DEFAULT_POOL)]

    def list_capacities(self, namespace: str) -> list[PoolCapacity]:
        """Return what the pools of a namespace offer, in alphabetical order."""
        return [self._pools[namespace, name].capacity for name in self.list_names(namespace)]

    def list_names(self, namespace: str) -> list[str]:
        """Return the names of a namespace's pools in alphabetical order."""
        return sorted(name for space, name in self._pools if space == namespace)


def _parse_code_check(spec: Object) -> CodeCheck:
    try:
        return CodeCheck.model_validate(spec.get("codeCheck") or {})
    except ValidationError:
        return CodeCheck()  # the operator runs nothing in a pool with an invalid spec


def _parse_tools(spec: Object) -> PoolTools:
    try:
        return PoolTools.model_validate(spec.get("tools") or {})
    except ValidationError:
        return PoolTools(allow=[])


def _strip_pool(pool: Object) -> Object:
    metadata = pool["metadata"]
    return {"metadata": {"namespace": metadata.get("namespace", ""), "name": metadata["name"]}}


def check_pool(name: str, *, caller: Caller, field: str) -> None:
    """Raise HttpProblem, a 403, if the caller may not use the pool that a field names."""
    allowed = caller.limits.pools
    if allowed is not None and name not in allowed:
        message = f"{caller.title} may use only {', '.join(allowed)}"
        raise HttpProblem("forbidden", 403, message, errors=[FieldError(field=field, message=message)])


def find_pool(name: str, *, caller: Caller, pools: PoolCache, field: str) -> CachedPool:
    """Return the pool that a field names. Raises HttpProblem, a 422, if there is none."""
    pool = pools.find(caller.namespace, name)
    if pool is None:
        names = ", ".join(pools.list_names(caller.namespace)) or "none"
        message = f"there is no pool {name} in namespace {caller.namespace}; there are: {names}"
        raise invalid_field(field, message)
    return pool


def choose_pool(named: str | None, language: Language | None, *, caller: Caller, pools: PoolCache) -> CachedPool:
    """Return the pool that a request names, or else one that runs its language.

    Raises HttpProblem: 403 for a pool that the caller may not use, 422 if there is no such pool.
    """
    usable = pools.list_usable(caller)
    if named is not None or language is None:
        name = DEFAULT_POOL if named is None else named
        check_pool(name, caller=caller, field="poolRef.name")
        usable = [find_pool(name, caller=caller, pools=pools, field="poolRef.name")]
    found = next((pool for pool in usable if language is None or pool.language == language), None)
    if found is not None:
        return found
    refusal = f"no pool runs {language}" if named is None else f"pool {named} does not run {language}"
    there = format_languages({pool.name: pool.language for pool in pools.list_usable(caller)})
    message = f"{refusal}; the pools are {there}"
    errors = [FieldError(field="language", message=message)]
    raise HttpProblem("language-not-offered", 422, f"language: {message}", errors=errors)


def describe_pool(name: str, *, caller: Caller, pools: PoolCache) -> str:
    """Return what a pool has in words for models, or an empty text if that is unknown or the caller may not use it."""
    allowed, pool = caller.limits.pools, pools.find(caller.namespace, name)
    if pool is None or (allowed is not None and name not in allowed):
        return ""
    libraries = [(library.name, library.version) for library in pool.capacity.libraries or ()]
    return describe_libraries(pool.capacity.python, libraries)
