"""A pool in memory: queue, plans, and reasons of a shortage."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from tests.unit.operator.test_pod_cache import item

from mcp_exec_api.constants import LABEL_MANAGED_BY, LABEL_NAME, MANAGED_BY, SANDBOX_NAME
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.cluster.kube.api import OperatorApi
from mcp_exec_operator.core.executions.execution import Execution
from mcp_exec_operator.core.executions.specs import SpecCache
from mcp_exec_operator.core.pods.manifest import PoolIdentity
from mcp_exec_operator.core.pods.network_policy import (
    ReleasePods,
    build_base_policy,
    build_namespace_policy,
    build_policy,
    has_drifted,
)
from mcp_exec_operator.core.pods.pod import PodCounts
from mcp_exec_operator.core.pods.status import PodProblem
from mcp_exec_operator.core.pools.enforcement import NetworkPolicyEnforcer
from mcp_exec_operator.core.pools.pool import Pool
from mcp_exec_operator.core.pools.status import PoolStatusWriter
from mcp_exec_operator.core.queueing.wait_queue import Waiter
from mcp_exec_operator.core.scaling.plan import REFILL_DELAY_SECONDS, PodPlan, pods_to_create
from mcp_exec_operator.metrics import Metrics


def pool(**spec: Any) -> Pool:
    made = Pool(namespace="agents", name="default")
    made.configure({"metadata": {"uid": "u", "generation": 1}, "spec": {"image": "i", "warm": {"min": 2}, **spec}})
    made.isolation.verify("")
    return made


def make_ready(made: Pool, *names: str) -> None:
    for name in names:
        made.pods.observe(item(name), now=0)
        made.mark_ready(name)


def join(made: Pool, **options: Any) -> Waiter:
    return made.join(**options)


def plan(made: Pool, now: float) -> PodPlan:
    return made.plan_pods(now=now, max_create=5000)


@pytest.mark.parametrize(
    ("warm_min", "max_pods", "cold", "counts", "expected"),
    [
        (3, 10, 0, PodCounts(), 3),
        (3, 10, 0, PodCounts(warm=1, starting=1), 1),
        (3, 10, 0, PodCounts(creating=2, starting=1), 0),
        (3, 10, 5, PodCounts(), 5),
        (3, 10, 5, PodCounts(starting=3), 2),
        (0, 10, 2, PodCounts(busy=4), 2),
        (3, 4, 0, PodCounts(busy=2, terminating=1), 1),
        (3, 4, 9, PodCounts(busy=5), 0),
        (0, 10, 0, PodCounts(), 0),
    ],
)
def test_what_is_short_is_made_as_far_as_there_is_room(
    warm_min: int, max_pods: int, cold: int, counts: PodCounts, expected: int
) -> None:
    assert pods_to_create(warm=warm_min, max_pods=max_pods, cold_starts=cold, counts=counts) == expected


async def test_the_pod_of_one_that_leaves_goes_to_the_next() -> None:
    made = pool()
    first, second = join(made), join(made)
    make_ready(made, "a")
    made.leave(first)
    assert second.future.result().name == "a"


async def test_a_shortage_waits_a_moment_unless_somebody_waits_or_a_pod_ended() -> None:
    made = pool()
    assert plan(made, 100.0).create == 0
    assert plan(made, 100.0 + REFILL_DELAY_SECONDS).create == 2
    made = pool()
    made.refill_now()
    assert plan(made, 200.0).create == 2
    made = pool()
    join(made)
    assert plan(made, 100.0).create == 2


async def test_no_pod_is_asked_for_without_isolation_or_during_a_pause() -> None:
    made = pool()
    join(made)
    made.isolation.reset()
    assert plan(made, 100.0).create == 0
    made.isolation.verify("")
    made.supply.fail(PodProblem(reason=Reason.POD_FAILED, message="it failed"), now=100.0)
    assert (plan(made, 100.5).create, plan(made, 101.5).create) == (0, 1)


def test_failures_in_a_row_end_with_a_pod_that_starts_or_another_template_and_runs_leave_the_window() -> None:
    made = pool()
    made.health.record_failure()
    made.health.record_run(Reason.RUNNER_DIED, now=1.0)
    made.health.record_run(Reason.USER_ERROR, now=2.0)
    assert (made.health.count_runs(since=1.0), made.health.count_runs(since=1.5)) == ((2, 1), (1, 0))
    for generation, spec, failures in ((2, {"image": "i", "warm": {"min": 3}}, 1), (3, {"image": "j"}, 0)):
        made.configure({"metadata": {"uid": "u", "generation": generation}, "spec": spec})
        assert made.health.failures == failures
    made.health.record_failure()
    made.pods.add_expectation("a", template=made.shape.template_hash, now=0)
    made.pods.confirm_created("a", uid="a", now=0)
    assert made.mark_ready("a") is not None
    assert made.health.failures == 0


@pytest.mark.parametrize("spec", [{"image": ""}, {"warm": {"min": -1}}, {"resources": {"limits": {"memory": "lots"}}}])
def test_a_pool_tells_what_is_wrong_with_its_spec(spec: dict[str, Any]) -> None:
    made = pool(**spec)
    problem = made.explain_shortage()
    assert problem.reason == "PoolUnavailable"
    assert next(iter(spec)) in problem.message


@pytest.mark.parametrize(
    "container", [{"resources": []}, {"resources": {"limits": {"memory": "1e3x"}}}, {"env": "x"}, {"volumeMounts": {}}]
)
def test_a_template_of_the_wrong_shape_harms_nothing(container: dict[str, Any]) -> None:
    made = pool(template={"spec": {"containers": [{"name": "sandbox", **container}, 7], "volumes": [7, {"name": {}}]}})
    assert made.shape.spec is not None or made.explain_shortage().reason == "PoolUnavailable"


def test_a_policy_lets_operator_and_gateway_in_and_nothing_out() -> None:
    identity = PoolIdentity(namespace="agents", name="default", uid="u")
    policy = build_policy(pool=identity, release=ReleasePods(namespace="mcp-exec-system", instance="one"))
    spec = policy["spec"]
    assert (spec["egress"], spec["policyTypes"]) == ([], ["Ingress", "Egress"])
    (rule,) = spec["ingress"]
    assert rule["ports"] == [{"protocol": "TCP", "port": 8700}]
    assert [peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for peer in rule["from"]] == [
        "operator",
        "gateway",
    ]
    assert all("namespaceSelector" in peer for peer in rule["from"])
    instances = {peer["podSelector"]["matchLabels"]["app.kubernetes.io/instance"] for peer in rule["from"]}
    assert instances == {"one"}, "another release in the same namespace is not let in"
    stored = {**policy, "spec": {name: value for name, value in spec.items() if name != "egress"}}
    assert not has_drifted(stored, policy)
    assert has_drifted({**policy, "spec": {**spec, "egress": [{}]}}, policy)
    assert has_drifted({**policy, "spec": {**spec, "podSelector": {}}}, policy)
    assert has_drifted({**policy, "metadata": {"name": "p"}}, policy)
    assert has_drifted({"metadata": policy["metadata"]}, policy)


def test_the_base_policy_denies_everything_and_is_deleted_after_its_pods() -> None:
    policy = build_base_policy(pool=PoolIdentity(namespace="agents", name="default", uid="u"))
    assert (policy["spec"]["ingress"], policy["spec"]["egress"]) == ([], [])
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert policy["metadata"]["finalizers"] == ["foregroundDeletion"]


def test_the_policy_of_a_namespace_denies_everything_to_all_its_sandboxes_and_to_no_other_pod() -> None:
    policy = build_namespace_policy("agents")
    assert policy["spec"] == {
        "podSelector": {"matchLabels": {LABEL_MANAGED_BY: MANAGED_BY, LABEL_NAME: SANDBOX_NAME}},
        "policyTypes": ["Ingress", "Egress"],
    }


@pytest.mark.parametrize(
    ("changes", "drifted"),
    [
        ({"finalizers": []}, True),
        ({"finalizers": ["foregroundDeletion", "networking.k8s.aws/resources"]}, False),
        ({"labels": {}}, True),
        ({"labels": {LABEL_MANAGED_BY: MANAGED_BY, "team": "a"}}, False),
        ({"ownerReferences": []}, True),
        ({"ownerReferences": [{"uid": "u"}, {"uid": "of-others"}]}, True),
        ({"annotations": {"note": "n"}}, False),
    ],
    ids=str,
)
def test_a_policy_keeps_what_lets_it_stand(changes: Object, drifted: bool) -> None:
    """Kubernetes deletes what has lost its owners. A network plugin adds its own finalizer."""
    policy = build_base_policy(pool=PoolIdentity(namespace="agents", name="default", uid="u"))
    assert has_drifted({**policy, "metadata": {**policy["metadata"], **changes}}, policy) is drifted


def test_an_older_version_that_is_told_late_changes_nothing() -> None:
    meta = {"name": "e", "namespace": "agents", "uid": "u", "resourceVersion": "9"}
    execution = Execution.from_object(
        {"metadata": meta, "spec": {"code": "x"}}, specs=SpecCache(api=cast(OperatorApi, None))
    )
    execution.observe({"metadata": {**meta, "resourceVersion": "8"}, "spec": {"code": "y", "cancelRequested": True}})
    assert (execution.seen.cancel_requested, execution.source.changed, execution.wakeup.is_set()) == (False, [], False)
    newer = {
        "metadata": {**meta, "resourceVersion": "10", "generation": 2},
        "spec": {"code": "y", "cancelRequested": True},
    }
    execution.observe(newer)
    execution.observe({**newer, "metadata": {**newer["metadata"], "resourceVersion": "11"}})
    assert (execution.seen.cancel_requested, execution.source.changed, execution.wakeup.is_set()) == (
        True,
        ["code"],
        True,
    )
    execution.wakeup.clear()
    execution.observe({**newer, "metadata": {**newer["metadata"], "resourceVersion": "12"}})
    assert not execution.wakeup.is_set()


def test_an_older_spec_that_is_told_late_changes_nothing() -> None:
    made = pool()
    newer = {"metadata": {"uid": "u", "generation": 3}, "spec": {"image": "i", "warm": {"min": 5}}}
    made.configure(newer)
    made.configure({"metadata": {"uid": "u", "generation": 2}, "spec": {"image": "i", "warm": {"min": 4}}})
    assert made.shape.spec is not None
    assert (made.shape.spec.warm.min, made.shape.body) == (5, newer)


async def test_a_pool_whose_policy_is_not_verified_waits_for_no_time() -> None:
    made = pool()
    assert plan(made, 10).next_at is not None
    made.isolation.reset()
    assert plan(made, 20).next_at is None


async def test_the_policy_of_a_pool_that_was_deleted_and_created_again_is_verified_at_once() -> None:
    made, policies = pool(), Policies()
    policy = NetworkPolicyEnforcer(pool=made, api=cast(OperatorApi, policies), release=ReleasePods(namespace="system"))
    await policy.ensure(1)
    made.remove()
    made.configure({"metadata": {"uid": "v", "generation": 1}, "spec": {"image": "i"}})
    assert not made.isolation.verified
    await policy.ensure(2)
    assert made.isolation.verified
    owners = [owner["uid"] for each in policies.created for owner in each["metadata"]["ownerReferences"]]
    assert owners == ["u", "u", "v", "v"]


async def test_a_policy_that_is_deleted_while_it_is_verified_is_verified_again() -> None:
    made = pool()
    policies = Policies(on_create=lambda body: policy.observe(body, deleted=True))
    policy = NetworkPolicyEnforcer(pool=made, api=cast(OperatorApi, policies), release=ReleasePods(namespace="system"))
    await policy.ensure(1)
    assert policy.dirty
    policies.on_create = lambda body: None
    await policy.ensure(2)
    assert not policy.dirty


async def test_a_pool_that_is_deleted_while_its_status_is_written_stays_deleted() -> None:
    made = pool()
    policies = Policies(on_patch=made.remove)
    await PoolStatusWriter(pool=made, api=cast(OperatorApi, policies), metrics=Metrics()).write(1)
    assert made.shape.body is None


@dataclass
class Policies:
    """An API server that has no object."""

    on_patch: Callable[[], None] = lambda: None
    on_create: Callable[[Object], None] = lambda body: None
    created: list[Object] = field(default_factory=list)

    async def get_network_policy(self, *_: str) -> None:
        return None

    async def create_network_policy(self, policy: Object) -> Object:
        self.created.append(policy)
        self.on_create(policy)
        return {**policy, "metadata": {**policy["metadata"], "uid": f"policy-{len(self.created)}"}}

    async def patch_pool_status(self, namespace: str, name: str, status: Object) -> Object:
        self.on_patch()
        return {"metadata": {"namespace": namespace, "name": name, "uid": "u"}, "status": status}

    async def create_event(self, event: Object) -> None:
        self.created.append(event)
