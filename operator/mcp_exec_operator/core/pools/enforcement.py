"""Enforces what confines a pool's pods: restores their NetworkPolicies, and deletes pods that somebody altered.

The policies exist and are unchanged before any pod is created, and are verified after each change.
"""

import asyncio
import logging
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Final

from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.util.backoff import Backoff
from mcp_exec_operator.cluster.kube.api import OperatorApi
from mcp_exec_operator.core.pods.integrity import ChangeableParts, find_alterations
from mcp_exec_operator.core.pods.manifest import PoolIdentity
from mcp_exec_operator.core.pods.network_policy import (
    ReleasePods,
    build_base_policy,
    build_namespace_policy,
    build_policy,
    has_drifted,
)
from mcp_exec_operator.core.pods.pod import Pod, PodState
from mcp_exec_operator.core.pods.status import PodProblem, is_terminating
from mcp_exec_operator.core.pools.pool import Pool
from mcp_exec_operator.core.pools.services import PodRemover, PoolServices

log = logging.getLogger(__name__)

_MAX_READS: Final = 8
"""Concurrent reads of pods that disappeared: a lost node may have many."""
_LABELS: Final = ("metadata.labels",)
"""What was changed in a pod that watches do not select any more, if that is unknown."""


class _PolicyDeleted(Exception):
    """A policy of that name is being deleted, so it cannot be relied on."""


@dataclass(kw_only=True, eq=False)
class NetworkPolicyEnforcer:
    """The NetworkPolicies of one pool, and that of its namespace, which all pools in it keep."""

    pool: Pool
    api: OperatorApi
    release: ReleasePods
    broker: bool = False
    """Whether the pods may reach the broker."""
    dirty: bool = True
    """Whether the policies have to be verified. Set by each resync and by each change of a policy."""
    backoff: Backoff = field(default_factory=Backoff)

    def observe(self, body: Object, *, deleted: bool) -> None:
        """Process a watch event of one of the policies. It is verified at once, unless it is as it should be."""
        identity = self.pool.identity
        wanted = next(each for each in self._build(identity) if each["metadata"]["name"] == body["metadata"]["name"])
        changed = deleted or is_terminating(body) or has_drifted(body, wanted)
        if self.pool.shape.body is not None and changed:
            self.dirty = True
            self.backoff.until = 0.0
            self.pool.changed()

    async def ensure(self, now: float) -> None:
        """Create or correct the policies if that is due, and record in the pool whether it is isolated."""
        pool = self.pool
        # the policies of a pool that was deleted and created again were deleted with the former one
        self.dirty = self.dirty or not pool.isolation.verified
        if not self.dirty or now < self.backoff.until:
            return
        identity = replace(pool.identity, policy_uid="")
        self.dirty = False  # what changes meanwhile is verified again
        try:
            base, *_ = [await self._apply(policy) for policy in self._build(identity)]
        except (ApiError, _PolicyDeleted) as error:
            cause = error.message if isinstance(error, ApiError) else str(error)
            message = f"no pod is created without its NetworkPolicies: {cause}"
            # only a refusal proves that a policy is missing; without an answer it is as last verified
            is_missing = not isinstance(error, ApiError) or error.code != 0
            problem = PodProblem(reason=Reason.POOL_UNAVAILABLE, message=message)
            pool.isolation.fail(problem, is_missing=is_missing)
            self.dirty = True
            self.backoff.fail(monotonic())
        else:
            self.backoff.succeed()
            # policies of the former pool are deleted with it
            if pool.shape.body is not None and replace(pool.identity, policy_uid="") == identity:
                pool.isolation.verify(base["metadata"]["uid"])
            else:
                self.dirty = True

    def _build(self, identity: PoolIdentity) -> tuple[Object, ...]:
        """Return the base and the others."""
        return (
            build_base_policy(pool=identity),
            build_namespace_policy(identity.namespace),
            build_policy(pool=identity, release=self.release, broker=self.broker),
        )

    async def _apply(self, policy: Object) -> Object:
        """Create or correct a policy, and return it as stored. Raises ApiError and _PolicyDeleted."""
        name = policy["metadata"]["name"]
        found = await self.api.get_network_policy(self.pool.namespace, name)
        if found is None:
            try:
                return await self.api.create_network_policy(policy)
            except ApiError as error:
                if error.code != 409:
                    raise
            # another pool has created that of the namespace meanwhile
            if (found := await self.api.get_network_policy(self.pool.namespace, name)) is None:
                raise _PolicyDeleted(f"NetworkPolicy {name} was deleted again")
        if is_terminating(found):
            raise _PolicyDeleted(f"NetworkPolicy {name} is being deleted")
        return await self.api.correct_network_policy(policy) if has_drifted(found, policy) else found


@dataclass(kw_only=True, eq=False)
class PodInspector:
    """Inspects the pods of one pool. The labels of an altered pod may not select its NetworkPolicies any more."""

    pool: Pool
    services: PoolServices
    remover: PodRemover
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MAX_READS))

    def inspect(self, pod: Pod, item: Object) -> None:
        """Delete a pod whose object shows that it was altered."""
        if self.pool.isolation.alterations.inspect(pod, item):
            return
        self._count()
        if self.pool.pods.retire(pod):
            self.services.tasks.spawn(self.remover.delete(pod), name=f"delete {pod.name}")

    def accept(self, pod: Pod, stored: Object) -> None:
        """Compare later objects of a pod with this one, which was verified."""
        pod.trust.parts = ChangeableParts.of(stored)
        if pod.seen.body is not None:  # a watch was faster than the answer
            self.inspect(pod, pod.seen.body)

    def check_gone(self, pod: Pod) -> None:
        """Delete a pod that no watch or list shows any more, if it exists: somebody took its labels."""
        ends = pod.state is PodState.TERMINATING or (pod.seen.body is not None and is_terminating(pod.seen.body))
        if pod.seen.uid is not None and not ends:
            self.services.tasks.spawn(self._check_gone(pod), name=f"look for {pod.name}")

    async def _check_gone(self, pod: Pod) -> None:
        try:
            async with self._slots:
                found = await self.services.api.get_pod(self.pool.namespace, pod.name)
        except ApiError as error:
            log.warning("pod %s may still exist: %s", pod.name, error, extra={"pool": self.pool.name})
        else:
            if found is None or found["metadata"]["uid"] != pod.seen.uid or is_terminating(found):
                return
            changed = (
                find_alterations(pod.trust.parts, ChangeableParts.of(found)) if pod.trust.parts is not None else ()
            )
            self.pool.isolation.alterations.note(pod, changed or _LABELS)
            self._count()
        await self.remover.delete(pod)

    def _count(self) -> None:
        self.remover.count_failure(Reason.POD_CHANGED)
        self.pool.changed()
