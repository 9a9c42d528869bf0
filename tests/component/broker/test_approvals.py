"""Calls that wait for an approval, against an API server in memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry
from tests.support.api_server import FakeApiServer
from tests.support.clock import Clock
from tests.support.constants import SANDBOX_KEY
from tests.support.grants import make_grant
from tests.support.pace import paced
from tests.support.until import until

from mcp_exec_api.approvals import Approval, ApprovalState
from mcp_exec_api.constants import EXECUTIONS
from mcp_exec_broker.core.access.approvals import MAX_APPROVALS, Approvals, CallArguments
from mcp_exec_broker.core.access.quotas import WaitingTime
from mcp_exec_broker.core.errors import ErrorReason, ToolCallError
from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.credentials import KubeCredentials
from mcp_exec_common.sandbox_keys import SandboxKeys

DEADLINE = paced(10)
PATH = custom_resource_path(EXECUTIONS, namespace="agents")
GRANT = make_grant(execution="u-1", expires=0)

ARGUMENTS = CallArguments(text='{"a": 1}', is_complete=True, digest="sha256:one", size=7)


class Cluster:
    """API server with two executions, and the approvals of a broker."""

    def __init__(self, server: FakeApiServer, kube: KubeClient) -> None:
        self.server = server
        self.kube = kube
        self.registry = CollectorRegistry()
        self.approvals = Approvals(attestor=Attestor(keys=SandboxKeys(SANDBOX_KEY)), kube=kube, registry=self.registry)
        self.asked: asyncio.Queue[Approval] = asyncio.Queue()
        self.waiting = WaitingTime()
        self.grant = GRANT
        server.put(PATH, {"metadata": {"name": "exec-1", "uid": "u-1"}, "spec": {}, "status": {"phase": "Running"}})
        server.put(PATH, {"metadata": {"name": "exec-2", "uid": "u-2"}, "spec": {}, "status": {"phase": "Running"}})

    def call(self, *, timeout_seconds: float = DEADLINE) -> asyncio.Task[Approval]:
        """Start a call that needs an approval."""
        return asyncio.create_task(
            self.approvals.wait_for_approval(
                grant=self.grant,
                tool="github.delete",
                arguments=ARGUMENTS,
                timeout_seconds=timeout_seconds,
                waiting=self.waiting,
                notify=self.asked.put,
            )
        )

    async def next(self) -> Approval:
        """Return the next request that the sandbox receives."""
        async with asyncio.timeout(DEADLINE):
            return await self.asked.get()

    def decide(self, *decisions: dict[str, Any]) -> None:
        """Write decisions into the execution's spec."""
        self.server.merge(PATH, "exec-1", {"spec": {"approvals": list(decisions)}})

    def count(self, state: str) -> float | None:
        return self.registry.get_sample_value("mcp_exec_broker_approvals_total", {"state": state})


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with FakeApiServer().running() as server, aiohttp.ClientSession(base_url=server.url) as session:
        kube = KubeClient(session=session, credentials=KubeCredentials(server=server.url), retry_delays=(0.01,))
        yield Cluster(server, kube)


async def failure_of(call: "asyncio.Task[Approval]") -> ToolCallError:
    with pytest.raises(ToolCallError) as raised:
        async with asyncio.timeout(DEADLINE):
            await call
    return raised.value


async def test_a_call_waits_until_it_is_approved(cluster: Cluster) -> None:
    call = cluster.call()
    asked = await cluster.next()
    assert cluster.approvals.list_approvals("u-1") == [asked]
    assert (asked.state, asked.tool) == (ApprovalState.PENDING, "github.delete")
    cluster.decide({"id": asked.id, "decision": "Approve", "by": "jo"})
    async with asyncio.timeout(DEADLINE):
        found = await call
    assert (found.state, found.decided_by, found.id) == (ApprovalState.APPROVED, "claimed:jo", asked.id)
    assert cluster.approvals.list_approvals("u-1") == [found]
    assert cluster.count("Approved") == 1
    assert cluster.registry.get_sample_value("mcp_exec_broker_approvals_pending") == 0


async def test_a_decision_names_its_author_only_if_the_gateway_wrote_it(cluster: Cluster) -> None:
    attestor = Attestor(keys=SandboxKeys(SANDBOX_KEY))
    decisions: list[tuple[dict[str, str], str]] = [
        ({"by": "jo"}, "jo"),
        ({"by": "jo", "proof": "0" * 64}, "claimed:jo"),
        ({"by": "jo"}, "claimed:jo"),
        ({}, "unknown, through the Kubernetes API"),
    ]
    for number, (fields, expected) in enumerate(decisions):
        call = cluster.call()
        entry = {"id": (await cluster.next()).id, "decision": "Approve", **fields}
        if number == 0:
            entry["proof"] = attestor.sign_decision(entry, uid="u-1")
        cluster.decide(entry)
        async with asyncio.timeout(DEADLINE):
            assert (await call).decided_by == expected


async def test_a_refused_call_says_who_refused_it_and_why(cluster: Cluster) -> None:
    call = cluster.call()
    asked = await cluster.next()
    cluster.decide({"id": asked.id, "decision": "Deny", "by": "jo", "comment": "not on a Friday"})
    failure = await failure_of(call)
    assert failure.reason is ErrorReason.NOT_APPROVED
    assert failure.message == "github.delete was not approved by claimed:jo: not on a Friday"
    assert cluster.approvals.list_approvals("u-1")[0].state is ApprovalState.DENIED


async def test_the_first_decision_counts(cluster: Cluster) -> None:
    call = cluster.call()
    id = (await cluster.next()).id
    cluster.decide({"id": id, "decision": "Deny"}, {"id": id, "decision": "Approve"})
    assert (await failure_of(call)).reason is ErrorReason.NOT_APPROVED


async def test_a_decision_on_other_arguments_does_not_count(cluster: Cluster) -> None:
    call = cluster.call()
    asked = await cluster.next()
    assert (asked.arguments, asked.arguments_digest, asked.arguments_bytes) == ('{"a": 1}', "sha256:one", 7)
    other = {"id": asked.id, "decision": "Approve", "argumentsDigest": "sha256:two"}
    cluster.decide(other, {"id": asked.id, "decision": "Deny", "by": "jo", "argumentsDigest": "sha256:one"})
    assert (await failure_of(call)).reason is ErrorReason.NOT_APPROVED


async def test_a_decision_in_another_execution_does_not_count(cluster: Cluster) -> None:
    cluster.grant = GRANT.model_copy(update={"execution": "u-2", "name": "exec-2"})
    theirs = cluster.call()
    cluster.grant = GRANT
    ours = cluster.call()
    asked = {(await cluster.next()).id for _ in range(2)}
    (our_id,) = (item.id for item in cluster.approvals.list_approvals("u-1"))
    (their_id,) = asked - {our_id}
    cluster.decide({"id": their_id, "decision": "Approve"}, {"id": our_id, "decision": "Deny"})
    assert (await failure_of(ours)).reason is ErrorReason.NOT_APPROVED
    assert [item.id for item in cluster.approvals.list_pending("agents", limit=9)] == [their_id]
    theirs.cancel()
    await asyncio.wait({theirs})


async def test_a_decision_after_the_limit_changes_nothing(cluster: Cluster) -> None:
    late, other = cluster.call(timeout_seconds=0.01), cluster.call()
    expired, pending = await cluster.next(), await cluster.next()
    assert (await failure_of(late)).reason is ErrorReason.APPROVAL_EXPIRED
    cluster.decide({"id": expired.id, "decision": "Approve"}, {"id": pending.id, "decision": "Approve"})
    async with asyncio.timeout(DEADLINE):
        await other
    states = {item.id: item.state for item in cluster.approvals.list_approvals("u-1")}
    assert states == {expired.id: ApprovalState.EXPIRED, pending.id: ApprovalState.APPROVED}


async def test_approving_one_call_covers_no_other(cluster: Cluster) -> None:
    one, two = cluster.call(), cluster.call(timeout_seconds=1)
    first, second = await cluster.next(), await cluster.next()
    cluster.decide({"id": first.id, "decision": "Approve"})
    assert (await one).state is ApprovalState.APPROVED
    assert (await failure_of(two)).reason is ErrorReason.APPROVAL_EXPIRED
    three = cluster.call()
    third = await cluster.next()
    assert third.id not in (first.id, second.id)
    cluster.approvals.close_execution("u-1")
    assert (await failure_of(three)).reason is ErrorReason.EXECUTION_ENDED


async def test_a_call_that_nobody_decides_on_is_denied(cluster: Cluster) -> None:
    failure = await failure_of(cluster.call(timeout_seconds=0.01))
    assert failure.reason is ErrorReason.APPROVAL_EXPIRED
    assert cluster.approvals.list_approvals("u-1")[0].state is ApprovalState.EXPIRED


@pytest.mark.parametrize(
    "change",
    [{"spec": {"cancelRequested": True}}, {"status": {"phase": "TimedOut"}}, {"metadata": {"uid": "u-9"}}],
)
async def test_an_execution_that_ends_withdraws_its_calls(cluster: Cluster, change: dict[str, Any]) -> None:
    call = cluster.call()
    await cluster.next()
    cluster.server.merge(PATH, "exec-1", change)
    assert (await failure_of(call)).reason is ErrorReason.EXECUTION_ENDED
    assert cluster.approvals.list_approvals("u-1")[0].state is ApprovalState.WITHDRAWN


async def test_an_execution_that_is_deleted_withdraws_its_calls(cluster: Cluster) -> None:
    call = cluster.call()
    await cluster.next()
    cluster.server.remove(PATH, "exec-1")
    assert (await failure_of(call)).reason is ErrorReason.EXECUTION_ENDED


async def test_an_execution_that_is_gone_already_gets_no_approval(cluster: Cluster) -> None:
    cluster.server.remove(PATH, "exec-1")
    assert (await failure_of(cluster.call())).reason is ErrorReason.EXECUTION_ENDED


async def test_a_call_that_is_given_up_is_withdrawn(cluster: Cluster) -> None:
    call = cluster.call()
    await cluster.next()
    call.cancel()
    await asyncio.wait({call})
    assert call.cancelled()
    assert cluster.approvals.list_approvals("u-1")[0].state is ApprovalState.WITHDRAWN
    assert cluster.count("Withdrawn") == 1


async def test_a_closed_execution_gets_no_more_approvals(cluster: Cluster) -> None:
    cluster.approvals.close_execution("u-1")
    assert (await failure_of(cluster.call())).reason is ErrorReason.EXECUTION_ENDED
    assert cluster.approvals.list_approvals("u-1") == []


async def test_a_decision_is_seen_through_a_watch_that_breaks(cluster: Cluster) -> None:
    call = cluster.call()
    asked = await cluster.next()
    await cluster.server.until_asked(lambda: any("watch" in seen.query for seen in cluster.server.seen))
    cluster.server.go_away()
    cluster.decide({"id": asked.id, "decision": "Approve"})
    cluster.server.away = False
    async with asyncio.timeout(DEADLINE):
        assert (await call).state is ApprovalState.APPROVED


async def test_only_so_many_calls_wait_and_so_many_are_remembered(cluster: Cluster) -> None:
    calls = [cluster.call() for _ in range(20)]
    for _ in calls:
        await cluster.next()
    assert (await failure_of(cluster.call())).reason is ErrorReason.BUDGET_EXCEEDED
    cluster.approvals.close_execution("u-1")
    await asyncio.wait(calls)
    other = Approvals(attestor=Attestor(keys=SandboxKeys(SANDBOX_KEY)), kube=cluster.kube)
    for _ in range(MAX_APPROVALS + 5):
        with pytest.raises(ToolCallError):
            await other.wait_for_approval(
                grant=GRANT,
                tool="a.b",
                arguments=ARGUMENTS,
                timeout_seconds=0,
                waiting=WaitingTime(),
                notify=cluster.asked.put,
            )
    assert len(other.list_approvals("u-1")) == MAX_APPROVALS
    for call in calls:
        assert isinstance(call.exception(), ToolCallError)


@asynccontextmanager
async def cancelled(calls: "list[asyncio.Task[Approval]]") -> AsyncIterator[None]:
    """Cancel the calls at the end, also if the test fails."""
    try:
        yield
    finally:
        for each in calls:
            each.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


@pytest.fixture
async def narrow(cluster: Cluster) -> AsyncIterator[Approvals]:
    """Approvals with connections of their own, as the broker has them."""
    async with (
        aiohttp.ClientSession(base_url=cluster.server.url, connector=aiohttp.TCPConnector(limit=16)) as session,
        aiohttp.ClientSession(base_url=cluster.server.url, connector=aiohttp.TCPConnector(limit=0)) as watches,
    ):
        credentials = KubeCredentials(server=cluster.server.url)
        kube = KubeClient(session=session, credentials=credentials, watch_session=watches)
        yield Approvals(attestor=Attestor(keys=SandboxKeys(SANDBOX_KEY)), kube=kube, max_pending=2000)


async def test_a_thousand_pending_approvals_delay_no_other_request_and_are_all_decided(
    cluster: Cluster, narrow: Approvals
) -> None:
    asked: asyncio.Queue[Approval] = asyncio.Queue()

    def call(number: int) -> asyncio.Task[Approval]:
        grant = GRANT.model_copy(update={"execution": f"u-{number}", "name": f"many-{number}"})
        return asyncio.create_task(
            narrow.wait_for_approval(
                grant=grant,
                tool="github.delete",
                arguments=ARGUMENTS,
                timeout_seconds=120,
                waiting=WaitingTime(),
                notify=asked.put,
            )
        )

    for number in range(1000):
        item = {"metadata": {"name": f"many-{number}", "uid": f"u-{number}"}, "spec": {}, "status": {}}
        cluster.server.put(PATH, item)
    calls: list[asyncio.Task[Approval]] = []
    async with cancelled(calls):
        for first in range(0, 1000, 100):
            calls += [call(number) for number in range(first, first + 100)]
            await until(lambda: {asked.qsize(), cluster.server.count_watches()} == {len(calls)})  # noqa: B023
        refusal = "1000 calls wait for an approval, which is the limit of namespace agents"
        with pytest.raises(ToolCallError, match=refusal):
            await call(1000)
        for _ in range(20):
            assert (await cluster.kube.get(f"{PATH}/exec-1"))["metadata"]["uid"] == "u-1"
        last = narrow.list_approvals("u-999")[0]
        cluster.server.merge(PATH, "many-999", {"spec": {"approvals": [{"id": last.id, "decision": "Approve"}]}})
        async with asyncio.timeout(DEADLINE):
            assert (await calls[999]).state is ApprovalState.APPROVED


async def test_calls_that_wait_are_listed_by_namespace_newest_first_until_they_are_decided(cluster: Cluster) -> None:
    one, two = cluster.call(), cluster.call()
    async with cancelled([one, two]):
        first, second = await cluster.next(), await cluster.next()
        listed = cluster.approvals.list_pending("agents", limit=10)
        assert [(item.id, item.execution, item.namespace) for item in listed] == [
            (second.id, "exec-1", "agents"),
            (first.id, "exec-1", "agents"),
        ]
        assert [item.id for item in cluster.approvals.list_pending("agents", limit=1)] == [second.id]
        assert cluster.approvals.list_pending("others", limit=10) == []
        assert cluster.approvals.list_pending("agents", caller=listed[0].caller, limit=10) == listed
        assert cluster.approvals.list_pending("agents", caller="somebody", limit=10) == []
        cluster.decide({"id": second.id, "decision": "Approve"})
        await two
        assert [item.id for item in cluster.approvals.list_pending("agents", limit=10)] == [first.id]


async def test_one_namespace_cannot_use_all_of_a_brokers_approvals(cluster: Cluster) -> None:
    approvals = Approvals(attestor=Attestor(keys=SandboxKeys(SANDBOX_KEY)), kube=cluster.kube, max_pending=4)

    def call(namespace: str, name: str) -> asyncio.Task[Approval]:
        grant = GRANT.model_copy(update={"execution": f"{namespace}-{name}", "name": name, "namespace": namespace})
        return asyncio.create_task(
            approvals.wait_for_approval(
                grant=grant,
                tool="a.b",
                arguments=ARGUMENTS,
                timeout_seconds=60,
                waiting=WaitingTime(),
                notify=cluster.asked.put,
            )
        )

    for namespace in ("agents", "others", "third"):
        for name in ("one", "two"):
            path = custom_resource_path(EXECUTIONS, namespace=namespace)
            cluster.server.put(path, {"metadata": {"name": name, "uid": f"{namespace}-{name}"}, "spec": {}})
    calls = [call("agents", "one"), call("agents", "two")]
    async with cancelled(calls):
        await until(lambda: cluster.asked.qsize() == 2)
        assert "limit of namespace agents" in (await failure_of(call("agents", "one"))).message
        calls += [call("others", "one"), call("others", "two")]
        await until(lambda: cluster.asked.qsize() == 4)
        failure = await failure_of(call("third", "one"))
        assert (failure.reason, "limit of this broker" in failure.message) == (ErrorReason.RATE_LIMITED, True)
        calls[0].cancel()
        await asyncio.wait({calls[0]})
        calls.append(call("third", "one"))
        await until(lambda: cluster.asked.qsize() == 5)


async def test_an_execution_waits_for_approvals_no_longer_than_its_grant_allows_in_all(cluster: Cluster) -> None:
    cluster.grant = GRANT.model_copy(update={"approval_seconds": 60})
    clock = cluster.waiting.clock = Clock()
    one, two = cluster.call(timeout_seconds=600), cluster.call(timeout_seconds=20)
    async with cancelled([one, two]):
        first, second = await cluster.next(), await cluster.next()
        assert (first.expires_at - first.requested_at, second.expires_at - second.requested_at) == (
            timedelta(seconds=60),
            timedelta(seconds=20),
        )
        clock.now += 45
        three = cluster.call(timeout_seconds=600)
        third = await cluster.next()
        assert third.expires_at - third.requested_at == timedelta(seconds=15)
        cluster.decide(*({"id": id, "decision": "Deny"} for id in (first.id, second.id, third.id)))
        await asyncio.wait({one, two, three})
    clock.now += 100  # nobody waits
    assert (cluster.waiting.seconds, cluster.waiting.remaining_seconds) == (45, 0)
    four = cluster.call()
    await cluster.next()
    clock.now += 15
    assert cluster.waiting.seconds == 60
    cluster.server.merge(PATH, "exec-1", {"metadata": {"uid": "u-9"}})
    await asyncio.wait({four})
    failure = await failure_of(cluster.call())
    assert failure.reason is ErrorReason.APPROVAL_EXPIRED
    assert failure.message == (
        "the execution may wait 60 s for approvals in all (approvalTimeoutSeconds), and has waited them"
    )
    cluster.grant = GRANT.model_copy(update={"approval_seconds": 0})
    assert (await failure_of(cluster.call())).reason is ErrorReason.APPROVAL_EXPIRED
