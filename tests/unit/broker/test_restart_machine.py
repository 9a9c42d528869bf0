"""Any order of calls, approvals, tokens, ends, restarts and crashes of a broker, against a naive model."""

import asyncio
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, precondition, rule
from tests.support.broker_in_process import ADDRESSES, RestartableBroker
from tests.support.constants import DEADLINE
from tests.support.fuzz import fuzz_settings
from tests.support.until import until

from mcp_exec_broker.core.calls.audit import compute_digest

BUDGET = 3
UIDS = ("uid-0", "uid-1")
VALUES = ("a", "b")
MAX_STARTS = 6
"""Processes of one sequence: a start takes longer than anything else."""
MEMORY = "/dev/shm"
"""Folder in memory: SQLite waits for the disk when a process ends."""
uids = st.sampled_from(UIDS)
values = st.sampled_from(VALUES)
often = st.sampled_from([True, True, True, False])


@dataclass(frozen=True)
class KnownToken:
    """A token as the execution received it."""

    text: str
    uid: str
    start: int
    """Number of the process that made it."""
    address: str


@dataclass(eq=False)
class Asked:
    """A call that asked for an approval."""

    id: str
    uid: str
    value: str
    task: asyncio.Task[dict[str, Any]]
    waits: bool = True


class BrokerRestarts(RuleBasedStateMachine):
    """The model: attempts by execution, closed executions, calls that wait, and what the server must have received."""

    tokens: Bundle[KnownToken] = Bundle("tokens")
    asked: Bundle[Asked] = Bundle("asked")

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None)
        first = Path(self.folder.name) / "start-0"
        first.mkdir()
        self.attempts: Counter[str] = Counter()
        self.closed: set[str] = set()
        self.calls: list[Asked] = []
        self.known: list[KnownToken] = []
        self.expected: list[tuple[str, object]] = []
        self.runner.run(self.begin(first))

    async def begin(self, folder: Path) -> None:
        self.broker = RestartableBroker(folder, tool_calls=BUDGET)
        for uid in UIDS:
            self.broker.executions.put(uid)
        await self.broker.start()

    def refuse(self, uid: str) -> str | None:
        """Count an attempt, and return the reason for which it must be refused."""
        self.attempts[uid] += 1
        if uid in self.closed:
            return "ExecutionEnded"
        return "BudgetExceeded" if self.attempts[uid] > BUDGET else None

    def call(self, uid: str, tool: str, value: object) -> dict[str, Any]:
        return self.runner.run(self.broker.call(uid, tool, value))

    # calls

    @rule(uid=uids, value=values)
    def call_an_allowed_tool(self, uid: str, value: str) -> None:
        refusal = self.refuse(uid)
        assert self.call(uid, "send", value).get("reason") == refusal
        if refusal is None:
            self.expected.append(("send", value))

    @rule(uid=uids)
    def call_an_unknown_tool(self, uid: str) -> None:
        refusal = self.refuse(uid)
        assert self.call(uid, "nothing", 1).get("reason") == (refusal or "NoSuchTool")

    # tokens

    @rule(target=tokens, uid=uids, number=st.integers(0, len(ADDRESSES) - 1))
    def receive_an_address(self, uid: str, number: int) -> Any:
        refusal = self.refuse(uid)
        answer = self.call(uid, "find", number)
        assert answer.get("reason") == refusal
        if refusal is not None:
            return multiple()
        self.expected.append(("find", number))
        token = KnownToken(answer["value"]["address"], uid, self.broker.starts, ADDRESSES[number])
        assert token.address not in token.text
        for other in self.known:
            assert (other.text == token.text) is (other == token)
        self.known.append(token)
        return token

    @rule(uid=uids, token=tokens)
    def use_a_token(self, uid: str, token: KnownToken) -> None:
        refusal = self.refuse(uid)
        if refusal is None and (token.uid, token.start) != (uid, self.broker.starts):
            refusal = "UnknownToken"
        assert self.call(uid, "send", token.text).get("reason") == refusal
        if refusal is None:
            self.expected.append(("send", token.address))

    # approvals

    @rule(target=asked, uid=uids, value=values)
    def ask_for_an_approval(self, uid: str, value: str) -> Any:
        refusal = self.refuse(uid)
        if refusal is not None:
            assert self.call(uid, "destroy", value).get("reason") == refusal
            return multiple()
        asked = self.runner.run(self.ask(uid, value))
        self.calls.append(asked)
        return asked

    async def ask(self, uid: str, value: str) -> Asked:
        past = {approval.id for approval in self.broker.core.pipeline.approvals.list_approvals(uid)}
        task = asyncio.create_task(self.broker.call(uid, "destroy", value))

        def find_new() -> list[str]:
            approvals = self.broker.core.pipeline.approvals.list_approvals(uid)
            return [approval.id for approval in approvals if approval.id not in past]

        await until(lambda: task.done() or find_new())
        assert not task.done(), task.result()
        return Asked(find_new()[0], uid, value, task)

    @rule(asked=asked, approves=often, stated=st.none() | values, here=often)
    def decide(self, asked: Asked, approves: bool, stated: str | None, here: bool = True) -> None:
        """Write a decision on a call, or one that is over, into an execution: on these arguments, others, or any."""
        place = asked.uid if here else next(uid for uid in UIDS if uid != asked.uid)
        self.runner.run(self.write(asked, approves=approves, stated=stated, place=place))

    @rule(asked=asked)
    def approve_other_arguments(self, asked: Asked) -> None:
        self.decide(asked, approves=True, stated=next(value for value in VALUES if value != asked.value))

    async def write(self, asked: Asked, *, approves: bool, stated: str | None, place: str) -> None:
        decision = {"id": asked.id, "decision": "Approve" if approves else "Deny"}
        if stated is not None:
            decision["argumentsDigest"] = compute_digest({"value": stated})
        self.broker.executions.decide(place, decision)
        if asked.waits and place == asked.uid and stated in (None, asked.value):
            assert (await self.get_answer(asked)).get("reason") == (None if approves else "NotApproved")
            if approves:
                self.expected.append(("destroy", asked.value))
        waiting = [each.task for each in self.calls if each.waits and each.uid == place]
        if waiting:
            await until(lambda: any(task.done() for task in waiting) or self.broker.executions.is_applied(place))
        for _ in range(20):  # a call that went on by mistake would reach the server
            await asyncio.sleep(0)

    async def get_answer(self, asked: Asked) -> dict[str, Any]:
        asked.waits = False
        async with asyncio.timeout(DEADLINE):
            return await asked.task

    # ends

    @rule(uid=uids)
    def close(self, uid: str) -> None:
        self.closed.add(uid)
        self.runner.run(self.end(uid))

    async def end(self, uid: str) -> None:
        calls = await self.broker.close(uid)
        assert calls["toolCalls"]["total"] == self.attempts[uid]
        for asked in self.calls:
            if asked.waits and asked.uid == uid:
                assert (await self.get_answer(asked)).get("reason") == "ExecutionEnded"

    def may_restart(self) -> bool:
        return self.broker.starts < MAX_STARTS

    @precondition(may_restart)
    @rule(crashes=st.booleans())
    def restart(self, crashes: bool) -> None:
        self.runner.run(self.restart_broker(crashes=crashes))

    @precondition(may_restart)
    @rule(uid=uids)
    def crash_before_the_answer(self, uid: str) -> None:
        refusal = self.refuse(uid)
        if refusal is not None:
            assert self.call(uid, "send", "lost").get("reason") == refusal
        self.runner.run(self.crash_during_call(uid) if refusal is None else self.restart_broker(crashes=True))

    async def crash_during_call(self, uid: str) -> None:
        self.expected.append(("send", "lost"))
        self.broker.server.holds = True
        task = asyncio.create_task(self.broker.call(uid, "send", "lost"))
        await until(lambda: task.done() or self.broker.server.received == self.expected)
        self.broker.crash()
        await cancel([task])
        self.broker.server.holds = False
        await self.restart_broker(crashes=False)

    async def restart_broker(self, *, crashes: bool) -> None:
        if crashes:
            self.broker.crash()
        waiting = [asked for asked in self.calls if asked.waits]
        await cancel([asked.task for asked in waiting])
        for asked in waiting:
            asked.waits = False
        await self.broker.stop()
        await self.broker.start()

    @invariant()
    def the_server_received_what_was_allowed_and_no_more(self) -> None:
        assert self.broker.server.received == self.expected
        assert [asked.value for asked in self.calls if asked.waits and asked.task.done()] == []

    def teardown(self) -> None:
        self.runner.run(cancel([asked.task for asked in self.calls if asked.waits]))
        self.runner.run(self.broker.stop())
        self.runner.close()
        self.folder.cleanup()


async def cancel(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def replay() -> Iterator[BrokerRestarts]:
    """Run a sequence that must be among those tried, whatever is generated."""
    machine = BrokerRestarts()
    try:
        yield machine
        machine.the_server_received_what_was_allowed_and_no_more()
    finally:
        machine.teardown()


def test_calls_before_and_after_a_crash_share_one_budget() -> None:
    with replay() as machine:
        for _ in range(BUDGET + 1):
            machine.call_an_allowed_tool("uid-0", "a")
            machine.restart(crashes=True)
        machine.call_an_allowed_tool("uid-1", "a")


def test_a_call_whose_answer_a_crash_lost_has_used_budget() -> None:
    with replay() as machine:
        for _ in range(BUDGET + 1):
            machine.crash_before_the_answer("uid-0")


def test_an_end_outlives_a_crash() -> None:
    with replay() as machine:
        machine.call_an_allowed_tool("uid-0", "a")
        for uid in UIDS:
            machine.close(uid)
        machine.restart(crashes=True)
        for uid in UIDS:
            machine.call_an_allowed_tool(uid, "a")


def test_an_approval_of_other_arguments_of_another_call_or_in_another_execution_counts_for_nothing() -> None:
    with replay() as machine:
        first, second = machine.ask_for_an_approval("uid-0", "a"), machine.ask_for_an_approval("uid-0", "b")
        machine.decide(first, approves=True, stated="b")
        machine.decide(first, approves=True, stated="a", here=False)
        machine.decide(second, approves=True, stated=None)
        machine.restart(crashes=True)
        third = machine.ask_for_an_approval("uid-0", "a")
        machine.decide(first, approves=True, stated="a")
        machine.decide(second, approves=True, stated=None)
        machine.decide(third, approves=False, stated=None)
        machine.close("uid-0")


# without shrinking, which takes longer than a test may: a sequence is short, and printed step by step
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
BrokerRestarts.TestCase.settings = fuzz_settings(10, stateful_step_count=25, phases=PHASES)
TestBrokerRestarts = pytest.mark.fuzz(BrokerRestarts.TestCase)
