"""The supervisors of the fake cluster's pods, and the count of everything that the operator does."""

import asyncio
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from aiohttp import web

from mcp_exec_common.kube.objects import Object

if TYPE_CHECKING:
    from tests.component.operator.world import World


class Steps:
    """Counts what the operator does, and holds it at the chosen step until it is killed."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.hold_at: int | None = None
        self.held = asyncio.Event()
        self.over = asyncio.Event()

    async def __call__(self, label: str) -> None:
        self.done.append(label)
        if self.hold_at is not None and len(self.done) == self.hold_at:
            self.held.set()
            await self.over.wait()

    def let_go(self) -> None:
        """Nobody waits at a step any more."""
        self.hold_at = None
        self.over.set()


@dataclass(eq=False)
class Supervisor:
    """One pod's supervisor: accepts one execution in its life, and plays what the execution's code names."""

    world: "World"
    pod: str
    state: str = "idle"
    job: Object | None = None
    events: list[Object] = field(default_factory=list)
    news: asyncio.Condition = field(default_factory=asyncio.Condition)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    play: asyncio.Task[None] | None = None
    wrappers: str | None = None
    puts: int = 0
    """How often it was given wrappers."""
    gone: bool = False
    frozen: bool = False
    """Whether it answers nothing, as where its node has no power: its connections stay open."""
    questioned: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it has been asked what it accepted."""

    async def vanish(self) -> None:
        """Its pod ends: its connections break."""
        self.gone = True
        if self.play is not None:
            self.play.cancel()
        async with self.news:
            self.news.notify_all()

    async def say(self, kind: str, **fields: Any) -> None:
        at = datetime.now(UTC).isoformat()
        self.events.append({"seq": len(self.events) + 1, "at": at, "type": kind, **fields})
        async with self.news:
            self.news.notify_all()

    async def end(self, phase: str, reason: str = "", error: Object | None = None) -> None:
        self.state = "finished"
        await self.say("end", phase=phase, reason=reason, error=error, stdoutBytes=2, runMs=0.5)

    async def run(self) -> None:
        """What the code asks for by its first word."""
        assert self.job is not None
        self.world.ran.append(self.job["id"])
        await self.say("status", phase="Running")
        word, _, rest = self.job["code"].partition(" ")
        if word == "print":
            await self.say("stdout", text=rest + "\n")
            await self.end("Succeeded")
        elif word == "value":
            await self.say("result", value=json.loads(rest), truncated=False)
            await self.end("Succeeded")
        elif word == "raise":
            await self.end("Failed", rest, {"type": rest, "message": "so it is", "line": 1})
        elif word == "ask":  # a call waits for consent until it is released
            await self.say("approval", id="call-1", tool="github.create_issue", expiresAt=None)
            await self.world.release.wait()
            await self.end("Succeeded")
        elif word == "say":
            for event in json.loads(rest):
                await self.say(**event)
        else:  # wait: until it is released or cancelled
            await self.say("stdout", text="waiting\n")
            released = asyncio.create_task(self.world.release.wait())
            stopped = asyncio.create_task(self.cancelled.wait())
            await asyncio.wait({released, stopped}, return_when=asyncio.FIRST_COMPLETED)
            await self.end(*(("Cancelled", "Cancelled") if stopped.done() else ("Succeeded",)))
            released.cancel()
            stopped.cancel()

    async def healthz(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"state": self.state, "wrappers": self.wrappers})

    async def take_wrappers(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.puts += 1
        self.world.given.append(self.pod)
        if self.state != "idle" or self.world.refuse_wrappers:
            return web.json_response({"error": "not now"}, status=409)
        self.wrappers = body["hash"]
        self.world.note()
        return web.json_response({"hash": self.wrappers})

    async def accept(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        await self.world.steps("before run")
        if self.job is not None:
            return web.json_response({"error": "used", "id": self.job["id"]}, status=409)
        self.job, self.state = body, "running"
        self.play = asyncio.create_task(self.run())
        await self.world.steps("after run")
        return await self._stream(request, 1)

    async def asked(self, request: web.Request) -> web.StreamResponse:
        self.questioned.set()
        found = self.job["id"] if self.job else None
        return web.json_response({"state": self.state, "id": found, "lastSeq": len(self.events)})

    async def replay(self, request: web.Request) -> web.StreamResponse:
        if self.job is None:
            return web.json_response({"error": "idle"}, status=404)
        return await self._stream(request, int(request.query.get("from", "1")))

    async def cancel(self, request: web.Request) -> web.StreamResponse:
        self.cancelled.set()
        return web.json_response({}, status=202)

    async def _stream(self, request: web.Request, start: int) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        sent = start - 1
        while True:
            async with self.news:
                await self.news.wait_for(lambda sent=sent: len(self.events) > sent or self.gone)
            if self.gone:
                assert request.transport is not None
                request.transport.abort()
                return response
            for event in self.events[sent:]:
                sent += 1
                await self.world.steps(f"event {event['type']}")
                if self.world.break_at == (self.pod, sent) or (self.world.break_at == ("", sent)):
                    self.world.break_at = None
                    assert request.transport is not None
                    request.transport.abort()
                    return response
                await response.write(json.dumps(event).encode() + b"\n")
                if event["type"] == "end":
                    return response
