"""The events of an execution: live from the pod, resumed at any point, completed from the status."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, get_args

import pytest
from pydantic import TypeAdapter
from tests.component.gateway.conftest import CEX, DEADLINE, OTHER_KEY, PODS, SANDBOX_KEY, Gateway, serving
from tests.support.api_server import FakeApiServer, Fault
from tests.support.supervisor import Attack, FakeSupervisor, Stage
from tests.support.until import until

from mcp_exec_api.wire.events import STREAM_EVENTS, AnyStreamEvent
from mcp_exec_gateway.core.routes import executions as routes

POD = "default-abcde"
STDOUT = ["one\n", "zwei ü\n", "三\n", "\U0001f600" * 3]
STDERR = ["careful\n", "again"]
NOTES = [{"kind": "ValueChanged", "path": "result.a", "message": "It is text."}]
ARTIFACTS = [
    {"id": f"a{number}", "name": "x.png", "mediaType": "image/png", "bytes": 1, "sha256": "0" * 64} for number in (1, 2)
]
MODELS: TypeAdapter[Any] = TypeAdapter(AnyStreamEvent)
"""Models of the events, without any other fields."""


@dataclass
class Scene:
    """A gateway, a pod with its supervisor, and one execution."""

    gateway: Gateway
    supervisor: FakeSupervisor
    name: str

    @property
    def uid(self) -> str:
        uid: str = self.gateway.executions[self.name]["metadata"]["uid"]
        return uid

    def bind(self, *, accepted: bool = True) -> None:
        self.gateway.api.merge(CEX, self.name, {"status": {"phase": "Running", "podName": POD}})
        if accepted:
            self.supervisor.id = self.uid

    def say_all(self) -> None:
        say = self.supervisor.say
        say("status", phase="Running")
        say("stdout", text=STDOUT[0])
        say("stderr", text=STDERR[0])
        say("stdout", text=STDOUT[1])
        say("stdout", text=STDOUT[2])
        say("stderr", text=STDERR[1])
        say("stdout", text=STDOUT[3])
        say("result", value={"a": 1}, truncated=False)

    def finish(self, **status: Any) -> None:
        output = {
            "stdout": "".join(STDOUT),
            "stderr": "".join(STDERR),
            "result": {"a": 1},
            "stdoutBytes": 40,
            "stderrBytes": 13,
            "truncated": False,
        }
        self.gateway.finish(self.name, **({"output": output} | status))

    def end(self) -> None:
        """End the run: first in the supervisor, then in the status; then delete the pod."""
        self.supervisor.say("end", phase="Succeeded", reason="")
        self.finish()
        self.gateway.api.remove(PODS, POD)

    def read(self, last: str | None = None) -> "Reader":
        return Reader(self.gateway, self.name, last)


@dataclass
class Reader:
    """One connection to the stream, and the frames that it received."""

    gateway: Gateway
    name: str
    last: str | None = None
    frames: list[dict[str, Any]] = field(default_factory=list)

    async def upto(self, count: int | None = None) -> list[dict[str, Any]]:
        """Read this many events, or all."""
        headers = {"Accept": "application/x-ndjson", **({"Last-Event-ID": self.last} if self.last else {})}
        async with (
            asyncio.timeout(DEADLINE),
            self.gateway.request("GET", f"/v1/executions/{self.name}/events", headers=headers) as response,
        ):
            assert response.status == 200
            async for line in response.content:
                if line.strip():
                    MODELS.validate_json(line)
                    self.frames.append(json.loads(line))
                if len(self.frames) == count:
                    break
        return self.frames


def text(frames: list[dict[str, Any]], kind: str) -> str:
    return "".join(frame["text"] for frame in frames if frame["type"] == kind)


def assert_whole(frames: list[dict[str, Any]]) -> None:
    assert text(frames, "stdout") == "".join(STDOUT)
    assert text(frames, "stderr") == "".join(STDERR)
    assert [frame["value"] for frame in frames if frame["type"] == "result"] == [{"a": 1}]
    assert [frame["phase"] for frame in frames if frame["type"] == "end"] == ["Succeeded"]
    assert [frame["phase"] for frame in frames if frame["type"] == "status"] in (["Running"], ["Pending", "Running"])
    assert frames[-1]["type"] == "end"
    assert len({frame["id"] for frame in frames}) == len(frames)


@asynccontextmanager
async def attacked(api: FakeApiServer, attack: Attack) -> AsyncIterator[Scene]:
    """A bound execution, whose supervisor answers as `attack` says."""
    stage = Stage()
    stage.attack = attack
    made = FakeSupervisor(key=SANDBOX_KEY, namespace="agents", pod=POD, stage=stage)
    async with made.running() as supervisor, serving(api, sandbox_port=supervisor.port) as gateway:
        api.put(PODS, {"metadata": {"name": POD}, "status": {"podIP": "127.0.0.1"}})
        scene = Scene(gateway, supervisor, (await gateway.post(query="?wait=0")).json["name"])
        scene.bind()
        yield scene
        stage.steps.let_go()


@pytest.fixture
async def scene(api: FakeApiServer) -> AsyncIterator[Scene]:
    async with (
        FakeSupervisor(key=SANDBOX_KEY, namespace="agents", pod=POD).running() as supervisor,
        serving(api, sandbox_port=supervisor.port) as gateway,
    ):
        api.put(PODS, {"metadata": {"name": POD}, "status": {"podIP": "127.0.0.1"}})
        name = (await gateway.post(query="?wait=0")).json["name"]
        yield Scene(gateway, supervisor, name)


async def test_a_run_is_followed_from_pending_to_its_end(scene: Scene) -> None:
    reader = scene.read()
    reading = asyncio.create_task(reader.upto())
    await until(lambda: len(reader.frames) == 1)
    assert (reader.frames[0]["type"], reader.frames[0]["phase"]) == ("status", "Pending")
    scene.bind(accepted=False)
    await until(lambda: bool(scene.gateway.api.asked("GET", f"/pods/{POD}")))
    scene.supervisor.id = scene.uid
    await until(lambda: scene.supervisor.readers == 1)
    scene.say_all()
    await until(lambda: len(reader.frames) == 9)
    scene.supervisor.say("end", phase="Succeeded", reason="")
    scene.finish(notes=NOTES)
    frames = await reading
    assert_whole(frames)
    assert [frame["seq"] for frame in frames] == list(range(10))
    assert frames[-1]["notes"] == NOTES
    assert (frames[-1]["podName"], frames[-1]["stdoutBytes"], frames[-1]["truncated"]) == (POD, 40, False)


async def test_each_event_arrives_while_the_code_runs(scene: Scene) -> None:
    scene.bind()
    reader = scene.read()
    reading = asyncio.create_task(reader.upto())
    scene.supervisor.say("status", phase="Running")
    for count in range(2, 5):
        scene.supervisor.say("stdout", text=f"{count}\n")
        await until(lambda: len(reader.frames) == len(scene.supervisor.events))
    reading.cancel()
    await asyncio.wait({reading})


async def test_server_sent_events_have_ids_types_and_data(scene: Scene) -> None:
    scene.finish()
    async with scene.gateway.request("GET", f"/v1/executions/{scene.name}/events") as response:
        assert response.headers["Content-Type"].startswith("text/event-stream")
        assert response.headers["Cache-Control"] == "no-store"
        body = await response.text()
    head, *blocks = body.rstrip("\n").split("\n\n")
    assert head == "retry: 1000"
    types = []
    for block in blocks:
        names, values = zip(*(line.split(": ", 1) for line in block.split("\n")), strict=True)
        assert names == ("id", "event", "data")
        data = json.loads(values[2])
        assert (data["id"], data["type"]) == values[:2]
        types.append(values[1])
    assert types == ["status", "stdout", "stderr", "result", "end"]


async def test_resuming_at_every_event_of_a_live_run_loses_and_doubles_nothing(scene: Scene) -> None:
    scene.bind()
    scene.say_all()
    whole = await scene.read().upto(8)
    for count in range(1, 8):
        first = await scene.read().upto(count)
        rest = await scene.read(first[-1]["id"]).upto(8 - count)
        assert first + rest == whole
    assert sorted(set(scene.supervisor.asked_from)) == list(range(1, 9))


async def test_resuming_from_the_status_at_every_event_loses_and_doubles_nothing(scene: Scene) -> None:
    scene.bind()
    scene.say_all()
    live = await scene.read().upto(8)
    scene.end()
    for count in range(1, 9):
        rest = await scene.read(live[count - 1]["id"]).upto()
        assert_whole(live[:count] + rest)
    synthesised = await scene.read().upto()
    assert_whole(synthesised)
    for count in range(1, len(synthesised)):
        rest = await scene.read(synthesised[count - 1]["id"]).upto()
        assert_whole(synthesised[:count] + rest)


async def test_artifacts_come_from_the_status_once_each(scene: Scene) -> None:
    scene.bind()
    scene.say_all()
    for artifact in ARTIFACTS:
        scene.supervisor.say("artifact", **artifact)
    live = await scene.read().upto(8)
    scene.supervisor.say("end", phase="Succeeded", reason="")
    scene.finish(artifacts=ARTIFACTS)
    rest = await scene.read(live[-1]["id"]).upto()
    assert [(frame["type"], frame.get("artifact")) for frame in rest] == [
        ("artifact", "a1"),
        ("artifact", "a2"),
        ("end", None),
    ]
    assert await scene.read(rest[0]["id"]).upto() == rest[1:]


async def test_a_reader_that_has_all_is_told_not_to_come_again(scene: Scene) -> None:
    scene.finish()
    frames = await scene.read().upto()
    path = f"/v1/executions/{scene.name}/events"
    assert (await scene.gateway.ask("GET", path, headers={"Last-Event-ID": frames[-1]["id"]})).status == 204
    assert (await scene.gateway.ask("GET", f"{path}?lastEventId={frames[-1]['id']}")).status == 204


async def test_the_last_id_may_come_as_a_parameter(scene: Scene) -> None:
    scene.finish()
    frames = await scene.read().upto()
    answer = await scene.gateway.ask("GET", f"/v1/executions/{scene.name}/events?lastEventId={frames[1]['id']}")
    assert answer.text.count("event: ") == len(frames) - 2


async def test_a_pod_that_vanishes_is_completed_from_the_status(scene: Scene) -> None:
    scene.bind()
    scene.supervisor.say("status", phase="Running")
    scene.supervisor.say("stdout", text=STDOUT[0] + STDOUT[1])
    reader = scene.read()
    reading = asyncio.create_task(reader.upto())
    await until(lambda: len(reader.frames) == 2)
    scene.supervisor.break_off()
    scene.gateway.api.remove(PODS, POD)
    scene.finish()
    assert_whole(await reading)


async def test_a_stream_that_breaks_is_taken_up_again_at_the_pod(scene: Scene) -> None:
    scene.bind()
    scene.supervisor.say("status", phase="Running")
    reader = scene.read()
    reading = asyncio.create_task(reader.upto())
    await until(lambda: len(reader.frames) == 1)
    scene.supervisor.break_off()
    await until(lambda: scene.supervisor.readers == 0)
    scene.supervisor.broken = False
    scene.supervisor.events.clear()
    scene.say_all()
    await until(lambda: len(reader.frames) == 8)
    scene.end()
    assert_whole(await reading)


async def test_a_pod_that_hangs_does_not_hold_the_end_back(scene: Scene) -> None:
    scene.bind()
    scene.supervisor.say("status", phase="Running")
    reader = scene.read()
    reading = asyncio.create_task(reader.upto())
    await until(lambda: len(reader.frames) == 1)
    scene.finish(phase="Succeeded")
    assert_whole(await reading)


@pytest.mark.parametrize(
    "raw",
    [
        b"nonsense\n",
        b'{"seq": 7, "at": "2026-11-21T20:00:00Z", "type": "stdout", "text": "from nowhere"}\n',
        b'{"seq": 1, "at": "2026-11-21T20:00:00Z", "type": "surprise"}\n',
        b'{"seq": 1, "at": "yesterday", "type": "stdout", "text": "x"}\n',
        b"x" * 3 * 1024 * 1024,
    ],
)
async def test_what_is_no_event_is_not_passed_on(scene: Scene, raw: bytes) -> None:
    scene.supervisor.raw = [raw]
    scene.bind()
    reader = scene.read()
    reading = asyncio.create_task(reader.upto())
    await until(lambda: len(scene.supervisor.asked_from) >= 2)
    scene.finish()
    assert_whole(await reading)


async def test_a_pod_that_runs_another_execution_is_not_read(scene: Scene) -> None:
    scene.supervisor.id = "another"
    scene.supervisor.say("stdout", text="not yours")
    scene.bind(accepted=False)
    reading = asyncio.create_task(scene.read().upto())
    await until(lambda: len(scene.gateway.api.asked("GET", f"/pods/{POD}")) >= 2)
    scene.finish()
    assert_whole(await reading)
    assert scene.supervisor.asked_from == []


async def test_a_run_that_never_had_a_pod_has_an_end_alone(scene: Scene) -> None:
    status = {"startedAt": None, "output": None, "podName": None, "error": {"type": "E", "message": "no pod"}}
    scene.finish(phase="Failed", reason="PoolUnavailable", **status)
    frames = await scene.read().upto()
    assert [frame["type"] for frame in frames] == ["end"]
    assert frames[0]["error"]["message"] == "no pod"
    assert frames[0]["reason"] == "PoolUnavailable"


async def test_an_execution_that_is_deleted_ends_its_stream(scene: Scene) -> None:
    reader = scene.read()
    reading = asyncio.create_task(reader.upto())
    await until(lambda: len(reader.frames) == 1)
    scene.gateway.api.remove(CEX, scene.name)
    frames = await reading
    assert (frames[-1]["type"], frames[-1]["phase"], frames[-1]["reason"]) == ("end", None, "Deleted")


async def test_signs_of_life_come_while_nothing_happens(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    response_class = partial(routes.StreamingEventResponse, keep_alive_seconds=0.01)
    monkeypatch.setattr(routes, "StreamingEventResponse", response_class)
    for accept, sign in [("text/event-stream", b": keep-alive\n"), ("application/x-ndjson", b"\n")]:
        async with (
            asyncio.timeout(DEADLINE),
            scene.gateway.request("GET", f"/v1/executions/{scene.name}/events", headers={"Accept": accept}) as response,
        ):
            signs = 0
            async for line in response.content:
                signs += line == sign
                if signs == 5:
                    break


async def test_streams_are_bounded_in_number_and_given_back(api: FakeApiServer) -> None:
    async with serving(api, max_streams=1) as gateway:
        name = (await gateway.post(query="?wait=0")).json["name"]
        reader = Reader(gateway, name)
        reading = asyncio.create_task(reader.upto())
        await until(lambda: gateway.dependencies.streams.open == 1 and len(reader.frames) == 1)
        answer = await gateway.ask("GET", f"/v1/executions/{name}/events")
        assert (answer.status, "Retry-After" in answer.headers) == (429, True)
        reading.cancel()
        await asyncio.wait({reading})
        await until(lambda: gateway.dependencies.streams.open == 0)
        assert gateway.dependencies.index.wait_count == 0
        assert not gateway.executions[name]["spec"]["cancelRequested"]


async def test_a_stream_ends_without_an_end_when_the_process_stops(scene: Scene) -> None:
    reader = scene.read()
    reading = asyncio.create_task(reader.upto())
    await until(lambda: len(reader.frames) == 1)
    scene.gateway.dependencies.shutdown.closing.set()
    assert [frame["type"] for frame in await reading] == ["status"]


async def test_a_stream_that_loses_the_api_server_ends_without_an_end(scene: Scene) -> None:
    scene.finish()
    path = f"/{scene.name}"
    for fault in (Fault("GET", path, 500), Fault("GET", path, 500)):
        scene.gateway.api.faults.append(fault)
    answer = await scene.gateway.ask("GET", f"/v1/executions/{scene.name}/events")
    assert answer.status == 503


async def test_what_can_not_be_had_is_not_acceptable(scene: Scene) -> None:
    path = f"/v1/executions/{scene.name}/events"
    assert (await scene.gateway.ask("GET", path, headers={"Accept": "text/html"})).status == 406
    assert (await scene.gateway.ask("GET", path, key=OTHER_KEY)).status == 404


async def test_tool_calls_and_approvals_arrive_as_they_happen(scene: Scene) -> None:
    scene.bind()
    say = scene.supervisor.say
    say("status", phase="Running")
    say("tool_call", id="c1", tool="github.merge", argumentBytes=12)
    say("approval", id="approval-0123456789abcdef", tool="github.merge", expiresAt="2026-11-21T20:05:00Z")
    say("tool_result", id="c1", tool="github.merge", ok=False, kind="ToolDenied", bytes=0, ms=float("inf"))
    frames = await scene.read().upto(4)
    assert [{name: value for name, value in frame.items() if name not in ("id", "at")} for frame in frames[1:]] == [
        {"seq": 2, "type": "tool_call", "call": "c1", "tool": "github.merge", "argumentBytes": 12},
        {
            "seq": 3,
            "type": "approval",
            "approval": "approval-0123456789abcdef",
            "tool": "github.merge",
            "expiresAt": "2026-11-21T20:05:00Z",
        },
        {
            "seq": 4,
            "type": "tool_result",
            "call": "c1",
            "tool": "github.merge",
            "ok": False,
            "kind": "ToolDenied",
            "bytes": 0,
            "ms": None,
        },
    ]
    async with scene.gateway.request("GET", f"/v1/executions/{scene.name}/events") as response:
        seen = b""
        async with asyncio.timeout(DEADLINE):
            while b"event: tool_result" not in seen:
                seen += await response.content.readany()
    assert b"event: approval\n" in seen
    # the status has the text that the stream did not send
    scene.finish()
    scene.gateway.api.remove(PODS, POD)
    rest = await scene.read(frames[-1]["id"]).upto()
    assert text(rest, "stdout") == "".join(STDOUT)


async def test_every_event_has_exactly_the_fields_of_its_model(scene: Scene) -> None:
    say, error = scene.supervisor.say, {"type": "ValueError", "message": "no", "line": 1, "traceback": "at line 1"}
    scene.bind()
    scene.say_all()
    say("tool_call", id="c1", tool="github.merge", argumentBytes=12)
    say("approval", id="approval-0123456789abcdef", tool="github.merge", expiresAt="2026-11-21T20:05:00Z")
    say("tool_result", id="c1", tool="github.merge", ok=False, kind="ToolDenied", message="no", bytes=0, ms=1.5)
    say("progress", done=1, total=None, text="")
    live = await scene.read().upto(len(scene.supervisor.events))
    artifacts = [{**ARTIFACTS[0], "title": "t", "preview": "p"}]
    failure = {"phase": "Failed", "reason": "UserError", "error": error}
    done = {"durations": {"total": 1.5}, "artifacts": artifacts, "skills": {"saved": ["report-v1"]}, "notes": NOTES}
    scene.finish(**failure, start="Warm", podName=POD, **done)
    sent = {frame["type"]: set(frame) for frame in live + await scene.read(live[-1]["id"]).upto()}
    expected = {
        kind: {str(field.alias) for field in model.model_fields.values()}
        for model in STREAM_EVENTS
        for kind in get_args(model.model_fields["type"].annotation)
    }
    assert sent == expected
