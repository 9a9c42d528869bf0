"""The pods of a pool in memory."""

from collections import Counter
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from mcp_exec_operator.core.pods.cache import UNCERTAIN_SECONDS, PodCache
from mcp_exec_operator.core.pods.pod import EXPECTATION_SECONDS, Pod, PodState
from mcp_exec_operator.core.scaling.plan import excess_pods, pods_to_create

WARM_MIN, MAX_PODS = 3, 7


def item(
    name: str,
    uid: str = "",
    *,
    phase: str = "Running",
    deleted: bool = False,
    state: str = "warm",
    template: str = "",
    node: str = "n1",
    ready: str = "True",
) -> Any:
    labels = {"mcp-exec.dev/state": state, "mcp-exec.dev/template": template}
    meta: dict[str, Any] = {"name": name, "uid": uid or f"uid-{name}", "labels": labels}
    if deleted:
        meta["deletionTimestamp"] = "2026-11-21T20:00:00Z"
    conditions = [{"type": "Ready", "status": ready}]
    status = {"phase": phase, "podIP": "10.0.0.1", "conditions": conditions}
    return {"metadata": meta, "spec": {"nodeName": node}, "status": status}


def warm(cache: PodCache, *names: str) -> None:
    for name in names:
        cache.observe(item(name), now=0)
        cache.mark_ready(name, now=1)


def test_the_pod_that_became_ready_last_is_taken_first_so_that_the_others_rest() -> None:
    cache = PodCache()
    warm(cache, "a", "b", "c")
    assert [pod.name for pod in iter(cache.take, None)] == ["c", "b", "a"]


def test_a_pod_that_is_put_back_is_the_next_to_be_taken() -> None:
    cache = PodCache()
    warm(cache, "a", "b")
    taken = cache.take()
    assert taken is not None
    assert cache.release(taken)
    assert [pod.name for pod in iter(cache.take, None)] == ["b", "a"]


def test_a_pod_that_was_asked_for_counts_at_once_and_once() -> None:
    cache = PodCache()
    cache.add_expectation("a", template="t", now=0)
    assert cache.counts.creating == 1
    cache.observe(item("a"), now=1)
    cache.confirm_created("a", uid="uid-a", now=2)
    assert (cache.counts.creating, cache.counts.starting, cache.counts.total) == (0, 1, 1)


def test_a_pod_whose_creation_had_no_answer_counts_until_a_list_tells_that_it_was_not_made() -> None:
    cache = PodCache()
    for name in ("made", "never"):
        cache.add_expectation(name, template="t", now=0)
        cache.mark_uncertain(name, now=10)
    cache.replace([item("made")], listed_at=10 + UNCERTAIN_SECONDS, now=20)
    assert cache.counts.total == 2
    cache.replace([item("made")], listed_at=10 + UNCERTAIN_SECONDS + 1, now=20)
    assert (cache.get("never"), cache.counts.total) == (None, 1)


def test_a_pod_that_an_execution_names_is_never_warm() -> None:
    cache = PodCache()
    warm(cache, "a")
    cache.adopt("a", uid="uid-a", now=2)
    cache.adopt("unseen", uid="uid-unseen", now=2)
    cache.observe(item("unseen"), now=3)
    assert cache.mark_ready("unseen", now=4) is None
    assert cache.take() is None


def test_a_pod_that_ended_is_not_taken() -> None:
    cache = PodCache()
    warm(cache, "a", "b", "c")
    cache.observe(item("a", phase="Failed"), now=2)
    cache.observe(item("b", deleted=True), now=2)
    assert [pod.name for pod in iter(cache.take, None)] == ["c"]
    assert cache.counts.terminating == 1


def test_whoever_has_a_pod_hears_that_it_is_lost() -> None:
    cache = PodCache()
    warm(cache, "a", "b", "c")
    taken = [cache.take() for _ in range(3)]
    assert not any(pod is None or pod.wakeup.is_set() for pod in taken)
    cache.forget("a")
    cache.observe(item("b", phase="Failed"), now=2)
    cache.observe(item("c", uid="another"), now=2)
    assert all(pod is not None and pod.wakeup.is_set() and pod.lost for pod in taken[:2])
    assert taken[2] is not None
    assert taken[2].wakeup.is_set()
    assert taken[2].gone


def test_a_pod_that_is_not_ready_any_more_is_not_taken_and_starts_anew_when_it_is_again() -> None:
    cache = PodCache()
    warm(cache, "a", "b")
    cache.observe(item("a", ready="False"), now=2)
    assert (cache.counts.not_ready, cache.counts.warm) == (1, 1)
    assert [pod.name for pod in iter(cache.take, None)] == ["b"]
    pod = cache.observe(item("a"), now=50)
    assert (pod.state, pod.start.since) == (PodState.STARTING, 50)
    assert cache.mark_ready("a", now=51) is pod


def test_pods_that_start_on_a_lost_node_do_not_count_as_coming_until_it_is_back() -> None:
    lost: set[str | None] = set()
    cache = PodCache(is_trusted_node=lambda node: node not in lost)
    for name, node in (("a", "n1"), ("b", "n2")):
        cache.observe(item(name, node=node, phase="Pending", ready="False"), now=0)
    lost.add("n1")
    cache.recheck_node("n1", now=2)
    assert (cache.counts.coming, cache.counts.not_ready) == (1, 1)
    assert cache.mark_ready("a", now=3) is None
    # the scheduler may have bound it before it saw the node's loss
    cache.observe(item("c", node="n1", phase="Pending", ready="False"), now=4)
    assert (cache.counts.coming, cache.counts.not_ready) == (1, 2)
    lost.clear()
    cache.recheck_node("n1", now=5)
    pod = cache.get("a")
    assert pod is not None
    assert (pod.state, pod.start.since, cache.counts.coming) == (PodState.STARTING, 5, 3)


def test_a_list_forgets_what_is_gone_and_keeps_what_came_after_it() -> None:
    cache = PodCache()
    warm(cache, "old", "kept")
    cache.add_expectation("asked", template="", now=5)
    cache.add_expectation("made", template="", now=5)
    cache.confirm_created("made", uid="uid-made", now=11)
    news = cache.replace([item("kept"), item("new")], listed_at=10, now=12)
    assert news == ["new"]
    assert {pod.name for pod in cache.all()} == {"kept", "new", "asked", "made"}
    cache.replace([item("kept")], listed_at=5 + EXPECTATION_SECONDS + 1, now=999)
    assert {pod.name for pod in cache.all()} == {"kept"}


class Life(RuleBasedStateMachine):
    """Whatever happens in whatever order, pods serve once or one owner, and not too many are made."""

    taken: Bundle[Pod] = Bundle("taken")

    def __init__(self) -> None:
        super().__init__()
        self.lost = False
        self.cache = PodCache(is_trusted_node=lambda node: not self.lost)
        self.made = 0
        self.used: set[str] = set()
        self.owners: dict[str, str] = {}
        self.exists: set[str] = set()
        self.now = 0.0

    @rule(waiting=st.integers(0, 5))
    def refill(self, waiting: int) -> None:
        self.now += 1
        for _ in range(pods_to_create(warm=WARM_MIN, max_pods=MAX_PODS, cold_starts=waiting, counts=self.cache.counts)):
            self.made += 1
            self.cache.add_expectation(f"p{self.made}", template="", now=self.now)
        assert self.cache.counts.total <= MAX_PODS
        short = pods_to_create(warm=WARM_MIN, max_pods=MAX_PODS, cold_starts=waiting, counts=self.cache.counts)
        assert short == 0

    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        pod = self._one(data, PodState.CREATING)
        if pod is not None:
            self.now += 1
            self.exists.add(pod.name)
            self.cache.confirm_created(pod.name, uid=f"uid-{pod.name}", now=self.now)

    @rule(data=st.data())
    def ready(self, data: st.DataObject) -> None:
        pod = self._one(data, PodState.STARTING)
        if pod is not None:
            self.cache.observe(item(pod.name), now=self.now)
            self.cache.mark_ready(pod.name, now=self.now)

    @rule(target=taken)
    def take(self) -> Any:
        pod = self.cache.take()
        if pod is None:
            return Pod(name="none", state=PodState.TERMINATING)
        assert pod.name not in self.used
        assert not self.lost or pod.seen.node is None
        self.used.add(pod.name)
        return pod

    @rule(pod=consumes(taken))
    def put_back(self, pod: Pod) -> None:
        self.cache.release(pod)
        if pod.state in (PodState.WARM, PodState.NOT_READY):  # one that is not ready may become so again, still unused
            self.used.discard(pod.name)

    @rule(pod=consumes(taken), owner=st.sampled_from(["alice", "bob"]))
    def keep(self, pod: Pod, owner: str) -> None:
        """The first owner of a pod is its owner for ever."""
        if pod.state is PodState.BUSY:
            pod.use.owner = pod.use.owner or owner
            self.owners.setdefault(pod.name, pod.use.owner)
            self.cache.keep_owned(pod, now=self.now)

    @rule(target=taken, owner=st.sampled_from(["alice", "bob", "eve"]))
    def take_owned(self, owner: str) -> Any:
        pod = self.cache.take_owned(owner)
        if pod is None:
            return Pod(name="none", state=PodState.TERMINATING)
        assert (self.owners[pod.name], pod.use.owner, pod.state) == (owner, owner, PodState.BUSY)
        assert not pod.lost
        assert not self.lost or pod.seen.node is None
        return pod

    @rule(pod=consumes(taken))
    def end(self, pod: Pod) -> None:
        self.cache.retire(pod)

    @rule(data=st.data())
    def vanish(self, data: st.DataObject) -> None:
        pod = self._one(data)
        if pod is not None:
            self.exists.discard(pod.name)
            self.cache.forget(pod.name)

    @rule(
        data=st.data(),
        phase=st.sampled_from(["Running", "Failed"]),
        deleted=st.booleans(),
        ready=st.sampled_from(["True", "False"]),
    )
    def tell(self, data: st.DataObject, phase: str, deleted: bool, ready: str) -> None:
        pod = self._one(data)
        if pod is not None:
            self.exists.add(pod.name)
            self.cache.observe(item(pod.name, phase=phase, deleted=deleted, ready=ready), now=self.now)

    @rule(lost=st.booleans())
    def change_node(self, lost: bool) -> None:
        self.lost = lost
        self.cache.recheck_node("n1", now=self.now)

    @rule()
    def resync(self) -> None:
        self.now += 1
        self.cache.replace([item(name) for name in self.exists], listed_at=self.now, now=self.now)

    @invariant()
    def counts_agree(self) -> None:
        pods = self.cache.all()
        counts = self.cache.counts
        assert counts.total == len(pods)
        assert all(getattr(counts, state.name.lower()) == sum(pod.state is state for pod in pods) for state in PodState)
        assert {pod.name for pod in self.cache.all(PodState.WARM)} == {
            pod.name for pod in pods if pod.state is PodState.WARM
        }
        assert excess_pods(warm=WARM_MIN, waiting=0, counts=counts) <= counts.warm + counts.coming
        kept = [pod.use.owner for pod in self.cache.all(PodState.OWNED)]
        assert {owner: self.cache.count_owned(owner) for owner in kept} == Counter(kept)

    def _one(self, data: st.DataObject, *states: PodState) -> Pod | None:
        pods = sorted(self.cache.all(*states), key=lambda pod: pod.name)
        return data.draw(st.sampled_from(pods)) if pods else None


Life.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLife = Life.TestCase
