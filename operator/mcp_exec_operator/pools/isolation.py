"""Ensures that a pool's NetworkPolicy exists and is unchanged, before any pod is created and after each resync."""

from dataclasses import dataclass, field
from time import monotonic

from mcp_exec_api.reasons import Reason
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.util.backoff import Backoff
from mcp_exec_operator.kube.api import OperatorApi
from mcp_exec_operator.pods.network_policy import build_policy, has_drifted
from mcp_exec_operator.pods.status import PodProblem
from mcp_exec_operator.pools.pool import WarmPool


@dataclass(kw_only=True, eq=False)
class NetworkPolicyEnforcer:
    """The NetworkPolicy of one pool."""

    pool: WarmPool
    api: OperatorApi
    release_namespace: str
    broker: bool = False
    """Whether the pods may reach the broker."""
    dirty: bool = True
    """Whether the policy has to be verified. Set by each resync, so that a changed policy is corrected."""
    backoff: Backoff = field(default_factory=Backoff)

    async def ensure(self, now: float) -> None:
        """Create or correct the policy if that is due, and record in the pool whether it is isolated."""
        pool = self.pool
        # the policy of a pool that was deleted and created again was deleted with the former one
        self.dirty = self.dirty or not pool.isolated
        if not self.dirty or now < self.backoff.until:
            return
        identity = pool.identity
        policy = build_policy(pool=identity, release_namespace=self.release_namespace, broker=self.broker)
        try:
            found = await self.api.get_network_policy(pool.namespace, policy["metadata"]["name"])
            if found is None:
                await self.api.create_network_policy(policy)
            elif has_drifted(found, policy):
                await self.api.replace_network_policy_spec(policy)
        except ApiError as error:
            message = f"no pod is created without its NetworkPolicy: {error.message}"
            pool.exposed = PodProblem(reason=Reason.POOL_UNAVAILABLE, message=message)
            # only a refusal proves that the policy is missing; without an answer it is as last verified
            pool.isolated = pool.isolated and error.code == 0
            self.backoff.fail(monotonic())
        else:
            self.backoff.succeed()
            # a policy of the former pool is deleted with it
            if pool.body is not None and pool.identity == identity:
                pool.exposed, pool.isolated, self.dirty = None, True, False
