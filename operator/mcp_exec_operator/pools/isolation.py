"""Sees to it that a pool's NetworkPolicy stands, before any pod is made and after each sweep."""

from dataclasses import dataclass, field
from time import monotonic

from mcp_exec_api.code_execution import Reason
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.util.backoff import Backoff
from mcp_exec_operator.kube.api import OperatorApi
from mcp_exec_operator.pods.network_policy import build_policy, has_drifted
from mcp_exec_operator.pods.status import PodProblem
from mcp_exec_operator.pools.partition import Partition


@dataclass(kw_only=True, eq=False)
class NetworkPolicyEnforcer:
    """The NetworkPolicy of one pool."""

    pool: Partition
    api: OperatorApi
    release_namespace: str
    broker: bool = False
    """Whether the pods may reach the broker."""
    wanted: bool = True
    """Whether it is to be verified: set by a sweep, so that a policy that somebody changed is put right."""
    backoff: Backoff = field(default_factory=Backoff)

    async def verify(self, at: float) -> None:
        """Makes the policy, or puts it right, where that is wanted and due; the pool is told whether it stands."""
        if not self.wanted or at < self.backoff.until:
            return
        pool = self.pool
        policy = build_policy(pool=pool.identity, release_namespace=self.release_namespace, broker=self.broker)
        try:
            found = await self.api.get_network_policy(pool.namespace, policy["metadata"]["name"])
            if found is None:
                await self.api.create_network_policy(policy)
            elif has_drifted(found, policy):
                await self.api.replace_network_policy_spec(policy)
        except ApiError as error:
            pool.exposed = PodProblem(
                reason=Reason.POOL_UNAVAILABLE, message=f"no pod is made without its NetworkPolicy: {error.message}"
            )
            # only a refusal proves that it does not stand; without an answer, it stands as it was last seen
            pool.isolated = pool.isolated and error.code == 0
            self.backoff.fail(monotonic())
        else:
            pool.exposed, pool.isolated, self.wanted = None, True, False
            self.backoff.succeed()
