"""What confines a pool's pods, and what others do to it: NetworkPolicies, pods of others, altered pods. No I/O."""

from dataclasses import dataclass, field
from typing import Final

from mcp_exec_operator.core.pods.authenticity import Alterations
from mcp_exec_operator.core.pods.network_policy import NamespacePolicies, Opening, pool_of_policy
from mcp_exec_operator.core.pods.status import PodProblem
from mcp_exec_operator.core.pools.shape import PoolShape

_MAX_STRANGERS: Final = 16
"""Pods of others that are remembered, to report them."""


@dataclass(kw_only=True, eq=False)
class Isolation:
    """Isolation of one pool's pods, as far as it was verified."""

    pool: str
    alterations: Alterations
    policies: NamespacePolicies = field(default_factory=NamespacePolicies)
    """NetworkPolicies of others in the namespace."""
    verified: bool = False
    """Whether the pool's NetworkPolicies were verified. Without them, no pod is created."""
    problem: PodProblem | None = None
    """Why the NetworkPolicies could not be verified."""
    policy_uid: str = ""
    """Uid of the base NetworkPolicy, once it was verified."""
    strangers: dict[str, str] = field(default_factory=dict)
    """Uids by name of pods that have the pool's labels and that no operator created."""
    _openings: tuple[tuple[int, int, str], list[Opening]] | None = None
    """What `find_openings` found last, and for what."""

    def verify(self, policy_uid: str) -> None:
        """Record that the NetworkPolicies are in place, with the uid of the base policy."""
        self.policy_uid, self.problem, self.verified = policy_uid, None, True

    def fail(self, problem: PodProblem, *, is_missing: bool) -> None:
        """Record why the policies could not be verified. Unless one is missing, they are as last verified."""
        self.problem, self.verified = problem, self.verified and not is_missing

    def reset(self) -> None:
        """Verify the policies again before any pod is created: they are deleted with their pool."""
        self.verified = False

    def add_stranger(self, name: str, uid: str) -> bool:
        """Remember a pod that no operator created. Return False if it is remembered, or if too many are."""
        if self.knows_stranger(name, uid) or len(self.strangers) >= _MAX_STRANGERS:
            return False
        self.strangers[name] = uid
        return True

    def knows_stranger(self, name: str, uid: str) -> bool:
        """Return whether a pod of others is remembered."""
        return self.strangers.get(name) == uid

    def remove_stranger(self, name: str, uid: str) -> None:
        """Forget a pod of others that was deleted."""
        if self.knows_stranger(name, uid):
            del self.strangers[name]

    def keep_strangers(self, listed: dict[str, str]) -> None:
        """Forget the pods of others that a list of all pods, uids by name, does not have."""
        self.strangers = {name: uid for name, uid in self.strangers.items() if listed.get(name) == uid}

    def find_openings(self, shape: PoolShape) -> list[Opening]:
        """Return the NetworkPolicies of others that open the pool's sandboxes."""
        key = (self.policies.version, shape.generation, shape.uid)
        if self._openings is None or self._openings[0] != key:
            found = self.policies.find(shape.labels) if shape.labels else []
            # its own are put right whenever they change
            self._openings = key, [each for each in found if pool_of_policy(each.name) != self.pool]
        return self._openings[1]
