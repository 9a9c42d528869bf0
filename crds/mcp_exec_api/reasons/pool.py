"""Reasons of a SandboxPool's conditions that are not reasons of its executions, too."""

from enum import StrEnum
from typing import Self


class PoolReason(StrEnum):
    """Reason of a condition of a pool, with the type of the condition and its meaning.

    `Ready` also has the reasons of executions that wait for the pool, such as ImagePullFailed. `make generate` writes
    docs/reference/reasons.md from here.
    """

    condition: str
    holds: bool | None
    """Whether the condition is True with this reason; None if it may be either."""
    meaning: str

    def __new__(cls, value: str, condition: str = "", holds: bool | None = None, meaning: str = "") -> Self:
        """Create a member that equals its value and has a condition and a meaning."""
        member = str.__new__(cls, value)
        member._value_, member.condition, member.holds, member.meaning = value, condition, holds, meaning
        return member

    WARM = "Warm", "Ready", True, "all pods that should be warm are warm, or no execution waits for those that are not"
    REFILLING = "Refilling", "Ready", True, "pods were used and their successors start, for less than 10 seconds so far"
    STARTING = "Starting", "Ready", False, "pods start, and nothing is known to be wrong"
    FIXED_SIZE = "FixedSize", "Scaled", True, "`warm.max` is not more than `warm.min`, so the number does not change"
    DEMAND = "Demand", "Scaled", None, "the number follows the measured demand"
    STABILIZING = "Stabilizing", "Scaled", None, "demand fell; the number stays for `scaling.stableSeconds`"
    AT_MINIMUM = "AtMinimum", "Scaled", None, "`warm.min` is more than the demand"
    AT_MAXIMUM = "AtMaximum", "Scaled", None, "`warm.max` is less than what was needed within `stableSeconds`"
    AT_MAX_PODS = "AtMaxPods", "Scaled", None, "busy pods leave less room below `maxPods`"
    ROLLOUT = "Rollout", "Scaled", None, "a stage of a rollout needs more pods than the demand"
    CURRENT = "Current", "Current", True, "all idle pods are of the present template"
    EARLIER_PROTOCOL = (
        "EarlierProtocol",
        "Current",
        True,
        "the pods' image speaks only the earlier version of the protocol: build it again before the next upgrade",
    )
    REPLACING = "Replacing", "Current", False, "idle pods of an earlier template are replaced step by step"
    NETWORK_POLICY = "NetworkPolicy", "Isolated", True, "the pool's NetworkPolicies exist, and no other opens its pods"
    NOT_VERIFIED = "NotVerified", "Isolated", False, "the operator has not read the NetworkPolicies yet"
    NETWORK_POLICY_FAILED = (
        "NetworkPolicyFailed",
        "Isolated",
        False,
        "a NetworkPolicy of the pool cannot be written, so no pod is created",
    )
    OPENED_BY_OTHERS = (
        "OpenedByOthers",
        "Isolated",
        False,
        "NetworkPolicies of others allow traffic of the pool's sandboxes; the message names them: remove them",
    )
    CREATED = "Created", "PodsTrusted", True, "the operator created all pods of the pool, and nobody changed them"
    PODS_CHANGED = (
        "PodsChanged",
        "PodsTrusted",
        False,
        "an admission webhook changes the pods, which are then not used; the message names the fields",
    )
    PODS_ALTERED = (
        "PodsAltered",
        "PodsTrusted",
        False,
        "somebody changed pods after their creation; they were deleted, and the message names the fields",
    )
    PODS_OF_OTHERS = (
        "PodsOfOthers",
        "PodsTrusted",
        False,
        "pods that no operator created have the pool's labels; they are ignored",
    )
    HONOURED = "Honoured", "TemplateHonoured", True, "pods have everything that the template says"
    FIELDS_REFUSED = (
        "FieldsRefused",
        "TemplateHonoured",
        False,
        "the template has fields that would weaken a sandbox; they are left out, and the message names them",
    )
