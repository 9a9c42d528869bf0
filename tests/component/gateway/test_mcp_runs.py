"""Runs of MCP clients while they last: progress, cancellation, disconnection, approvals, replicas that end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp_types import ElicitRequestParams, ElicitResult
from tests.component.gateway.conftest import (
    CEX,
    DEADLINE,
    KEY,
    PODS,
    SANDBOX_KEY,
    SECRETS,
    Gateway,
    key_entry,
    keys_secret,
    serving,
)
from tests.component.gateway.mcp_client import MODERN, REVISIONS, SESSIONS, connecting
from tests.component.gateway.test_approvals import approval
from tests.support.api_server import FakeApiServer
from tests.support.supervisor import FakeSupervisor
from tests.support.until import until

from mcp_exec_gateway.features.mcp.abandoned_runs import AbandonedRuns

POD = "default-abcde"
COLLEAGUE = "mcpx_" + "c" * 43
"""Key of another caller of the same namespace."""
Object = dict[str, Any]


@dataclass
class Scene:
    """A gateway, and a pod whose supervisor says what a test says."""

    gateway: Gateway
    supervisor: FakeSupervisor
    progress: list[tuple[float, float | None, str | None]] = field(default_factory=list)
    forms: list[str] = field(default_factory=list)
    answer: ElicitResult = field(
        default_factory=lambda: ElicitResult(action="accept", content={"decision": "Approve", "comment": "go on"})
    )

    async def note_progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.progress.append((progress, total, message))

    async def fill_form(self, context: Any, params: ElicitRequestParams) -> ElicitResult:
        self.forms.append(params.message)
        return self.answer

    @property
    def name(self) -> str:
        (name,) = self.gateway.executions
        return name

    async def bind(self) -> str:
        """Bind the execution, once there is one, to the pod, and return its name."""
        await until(lambda: self.gateway.executions)
        self.gateway.api.merge(CEX, self.name, {"status": {"phase": "Running", "podName": POD}})
        self.supervisor.id = self.gateway.executions[self.name]["metadata"]["uid"]
        self.supervisor.say("status", phase="Running")
        return self.name

    def finish(self, **status: Any) -> None:
        self.supervisor.say("end", phase="Succeeded", reason="")
        self.gateway.finish(self.name, **status)

    def wait_for_approval(self, *ids: str) -> None:
        pending = [approval(id) for id in ids]
        self.gateway.api.merge(CEX, self.name, {"status": {"approvals": pending}})

    @property
    def decisions(self) -> list[Object]:
        return self.gateway.executions[self.name]["spec"].get("approvals") or []

    @property
    def is_cancelled(self) -> bool:
        return bool(self.gateway.executions[self.name]["spec"].get("cancelRequested"))


@asynccontextmanager
async def playing(api: FakeApiServer, **changes: Any) -> AsyncIterator[Scene]:
    entries = {"team-a": key_entry(KEY), "colleague": key_entry(COLLEAGUE)}
    api.put(SECRETS, keys_secret(**{name: {**entry, "approver": True} for name, entry in entries.items()}))
    async with (
        FakeSupervisor(key=SANDBOX_KEY, namespace="agents", pod=POD).running() as supervisor,
        serving(api, sandbox_port=supervisor.port, **changes) as gateway,
    ):
        api.put(PODS, {"metadata": {"name": POD}, "status": {"podIP": "127.0.0.1"}})
        yield Scene(gateway, supervisor)


@pytest.fixture
async def scene(api: FakeApiServer) -> AsyncIterator[Scene]:
    async with playing(api) as made:
        yield made


def run(client: Client, scene: Scene, code: str = "work()", **options: Any) -> "asyncio.Task[Any]":
    return asyncio.create_task(client.call_tool("run_code", {"code": code}, **options))


async def ended(task: "asyncio.Task[Any]") -> Any:
    async with asyncio.timeout(DEADLINE):
        return await task


@pytest.mark.parametrize("revision", REVISIONS)
async def test_lines_and_reports_are_progress_that_grows(scene: Scene, revision: str) -> None:
    async with connecting(scene.gateway.url, revision) as client:
        running = run(client, scene, "work(progress)", progress_callback=scene.note_progress)
        await scene.bind()
        scene.supervisor.say("stdout", text="one\n")
        await until(lambda: scene.progress)
        scene.supervisor.say("progress", done=3, total=10, text="page 3")
        await until(lambda: len(scene.progress) == 2)
        scene.supervisor.say("progress", done=2, total=10, text="back")
        scene.supervisor.say("stdout", text="two\nthree\n")
        scene.finish(output={"stdout": "one\ntwo\nthree\n", "stderr": "", "truncated": False})
        result = await ended(running)
    assert result.structured_content["stdout"] == "one\ntwo\nthree\n"
    values, totals, texts = zip(*scene.progress, strict=True)
    assert list(values) == sorted(set(values))
    assert (values[1], totals[1]) == (3, 10)
    assert totals[0] is None
    assert set(totals[1:]) == {10}
    assert sorted(texts) == ["back", "one", "page 3", "two\nthree"]


@pytest.mark.parametrize(
    ("code", "counts"), [("work()", True), ("for n in progress: ...", False), ("import skills", False)]
)
async def test_lines_are_counted_unless_the_code_may_report_numbers_of_its_own(
    scene: Scene, code: str, counts: bool
) -> None:
    async with connecting(scene.gateway.url, MODERN) as client:
        running = run(client, scene, code, progress_callback=scene.note_progress)
        await scene.bind()
        for number in (1, 2, 3):
            scene.supervisor.say("stdout", text=f"{number}\n")
            await until(lambda: len(scene.progress) == number)  # noqa: B023
        scene.finish()
        await ended(running)
    values = [each[0] for each in scene.progress]
    assert values == [1, 2, 3] if counts else values == sorted(set(values)) and values[-1] < 0.001


async def test_progress_is_never_beyond_the_total_also_after_the_last_report(scene: Scene) -> None:
    async with connecting(scene.gateway.url, MODERN) as client:
        running = run(client, scene, progress_callback=scene.note_progress)
        await scene.bind()
        scene.supervisor.say("progress", done=3, total=3, text="all")
        await until(lambda: len(scene.progress) == 1)
        scene.supervisor.say("stdout", text="done\n")
        await until(lambda: len(scene.progress) == 2)
        scene.finish()
        await ended(running)
    assert scene.progress[0] == (3, 3, "all")
    (progress, total, message) = scene.progress[1]
    assert (progress > 3, total, message) == (True, progress, "done")


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_client_that_cancels_cancels_the_execution(scene: Scene, revision: str) -> None:
    scene.gateway.dependencies.get(AbandonedRuns).grace_seconds = 0
    async with connecting(scene.gateway.url, revision) as client:
        running = run(client, scene, progress_callback=scene.note_progress)
        await scene.bind()
        scene.supervisor.say("stdout", text="one\n")
        await until(lambda: scene.progress)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await until(lambda: scene.is_cancelled)


@pytest.mark.parametrize(
    ("revision", "query", "cancels"),
    [(MODERN, "", True), (MODERN, "?onDisconnect=continue", False), (SESSIONS, "?onDisconnect=cancel", True)],
)
async def test_a_client_that_disconnects_cancels_as_its_url_says(
    scene: Scene, revision: str, query: str, cancels: bool
) -> None:
    scene.gateway.dependencies.get(AbandonedRuns).grace_seconds = 0
    async with connecting(scene.gateway.url, revision, query=query) as client:
        running = run(client, scene)
        await scene.bind()
    await asyncio.gather(running, return_exceptions=True)
    await until(lambda: not scene.gateway.dependencies.index.wait_count)
    if cancels:
        await until(lambda: scene.is_cancelled)
    assert scene.is_cancelled == cancels


@pytest.mark.parametrize("revision", REVISIONS)
async def test_approvals_are_forms_for_the_user(scene: Scene, revision: str) -> None:
    async with connecting(scene.gateway.url, revision, elicitation_callback=scene.fill_form) as client:
        running = run(client, scene)
        await scene.bind()
        scene.wait_for_approval("a1", "a2")
        await until(lambda: len(scene.decisions) == 2)
        scene.finish()
        result = await ended(running)
    assert result.structured_content["phase"] == "Succeeded"
    assert len(scene.forms) == 2
    assert f"The code of {scene.name} wants to call github.merge with no parameters." in scene.forms[0]
    assert {(each["id"], each["decision"], each["comment"], each["by"]) for each in scene.decisions} == {
        ("a1", "Approve", "go on", "team-a"),
        ("a2", "Approve", "go on", "team-a"),
    }


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_run_is_followed_before_a_decision_lets_it_go_on(scene: Scene, revision: str) -> None:
    readers: list[int] = []
    async with connecting(scene.gateway.url, revision, elicitation_callback=scene.fill_form) as client:
        running = run(client, scene, progress_callback=scene.note_progress)
        await scene.bind()
        scene.wait_for_approval("a1")
        await until(lambda: scene.decisions and (readers.append(scene.supervisor.readers) or True))
        scene.supervisor.say("progress", done=1, total=1, text="all")
        scene.finish()
        await ended(running)
    assert readers == [1]
    assert (1, 1, "all") in scene.progress


async def test_a_decision_is_recorded_though_the_run_can_not_be_followed(scene: Scene) -> None:
    scene.gateway.api.put(SECRETS, keys_secret(**{"team-a": {**key_entry(KEY, maxWaits=1), "approver": True}}))
    await until(lambda: scene.gateway.dependencies.keys.find(KEY).entry.limits.max_waits)  # type: ignore[union-attr]
    others: list[asyncio.Task[Any]] = []

    async def take_the_last_wait(context: Any, params: ElicitRequestParams) -> ElicitResult:
        others.append(asyncio.create_task(scene.gateway.post({"code": "1"}, "?wait=30")))
        await until(lambda: len(scene.gateway.executions) == 2)
        return scene.answer

    async with connecting(scene.gateway.url, MODERN, elicitation_callback=take_the_last_wait) as client:
        running = run(client, scene)
        name = await scene.bind()
        scene.wait_for_approval("a1")
        with pytest.raises(MCPError, match="1 are allowed"):
            await ended(running)
    decisions = scene.gateway.executions[name]["spec"]["approvals"]
    assert [(each["id"], each["decision"]) for each in decisions] == [("a1", "Approve")]
    for other in others:
        other.cancel()
    await asyncio.gather(*others, return_exceptions=True)


ANSWERS = [
    (ElicitResult(action="accept", content={"decision": "Deny", "comment": "no"}), ["Deny"]),
    (ElicitResult(action="decline"), ["Deny"]),
    (ElicitResult(action="cancel"), []),
    (ElicitResult(action="accept", content={"decision": "Perhaps"}), []),
]


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_user_may_deny_or_leave_the_decision_to_others(scene: Scene, revision: str) -> None:
    async with connecting(scene.gateway.url, revision, elicitation_callback=scene.fill_form) as client:
        for number, (answer, decisions) in enumerate(ANSWERS, 1):
            scene.answer = answer
            running = run(client, scene)
            await scene.bind()
            scene.wait_for_approval("a1")
            await until(lambda: len(scene.forms) == number and len(scene.decisions) == len(decisions))  # noqa: B023
            scene.finish()
            await ended(running)
            assert [each["decision"] for each in scene.decisions] == decisions
            scene.gateway.api.remove(CEX, scene.name)
    assert len(scene.forms) == len(ANSWERS)


@pytest.mark.parametrize("revision", REVISIONS)
async def test_who_may_not_approve_is_not_asked(scene: Scene, revision: str) -> None:
    scene.gateway.api.put(SECRETS, keys_secret(**{"team-a": key_entry(KEY)}))
    await until(lambda: not scene.gateway.dependencies.keys.find(KEY).entry.approver)  # type: ignore[union-attr]
    async with connecting(scene.gateway.url, revision, elicitation_callback=scene.fill_form) as client:
        running = run(client, scene)
        await scene.bind()
        scene.wait_for_approval("a1")
        scene.finish()
        await ended(running)
    assert not scene.forms


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_silent_run_has_a_heartbeat_that_grows_also_while_it_waits_for_a_pod(
    api: FakeApiServer, revision: str
) -> None:
    async with playing(api, mcp_heartbeat_seconds=0.05) as scene, connecting(scene.gateway.url, revision) as client:
        running = run(client, scene, progress_callback=scene.note_progress)
        await until(lambda: len(scene.progress) >= 2)
        await scene.bind()
        await until(lambda: "still running" in str(scene.progress[-1][2]))
        scene.supervisor.say("progress", done=5, total=10, text="half")
        await until(lambda: (5, 10, "half") in scene.progress)
        seen = len(scene.progress)
        await until(lambda: len(scene.progress) > seen + 1)
        scene.finish()
        await ended(running)
    values, _, texts = zip(*scene.progress, strict=True)
    assert list(values) == sorted(set(values))
    assert texts[0] == "still waiting for a pod after 0 s"


async def test_a_heartbeat_goes_on_when_the_events_can_not_be_followed(api: FakeApiServer) -> None:
    async with playing(api, mcp_heartbeat_seconds=0.05) as scene, connecting(scene.gateway.url, MODERN) as client:
        scene.supervisor.broken = True
        running = run(client, scene, progress_callback=scene.note_progress)
        await scene.bind()
        await until(lambda: "still running" in str(scene.progress and scene.progress[-1][2]) or len(scene.progress) > 5)
        scene.finish()
        await ended(running)


async def test_a_client_without_a_token_gets_no_heartbeat(api: FakeApiServer) -> None:
    async with playing(api, mcp_heartbeat_seconds=0.01) as scene, connecting(scene.gateway.url, MODERN) as client:
        running = run(client, scene)
        await scene.bind()
        scene.finish()
        await ended(running)
    assert not scene.progress
