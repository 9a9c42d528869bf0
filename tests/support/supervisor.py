"""The supervisors of fake pods, and the steps of the process under test that reach them.

Benchmarks have supervisors of their own (bench/supervisors.py): thousands in one process, at little cost for each.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from mcp_exec_common.peers import PROOF_PATH, compute_proof, normalize_address
from mcp_exec_common.supervisor.client import EXECUTION_HEADER
from mcp_exec_common.supervisor.tokens import supervisor_token, token_digest
from mcp_exec_tools.protocol import PROTOCOLS
from tests.support.attacks import Play

Object = dict[str, Any]


Attack = Callable[["FakeSupervisor", str, web.Request], Play | None]
"""Chooses an attack for a request to the route of a name."""


class Steps:
    """Count of what the process under test does. Holds it at the chosen step until it is killed."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.hold_at: int | None = None
        self.held = asyncio.Event()
        self.over = asyncio.Event()

    async def __call__(self, label: str) -> None:
        """Count a step."""
        self.done.append(label)
        if self.hold_at is not None and len(self.done) == self.hold_at:
            self.held.set()
            await self.over.wait()

    def let_go(self) -> None:
        """Let all that is held go on."""
        self.hold_at = None
        self.over.set()


class Stage:
    """What all supervisors of a fake cluster share."""

    def __init__(self) -> None:
        self.steps = Steps()
        self.ran: list[str] = []
        """Ids of the executions whose code began, each time that it did."""
        self.jobs: list[Object] = []
        """Jobs that supervisors accepted."""
        self.release = asyncio.Event()
        """Set to end code that waits."""
        self.break_at: tuple[str, int] | None = None
        """A pod (or an empty text for any) and an event where its stream breaks, once."""
        self.refuse_wrappers = False
        """Whether supervisors refuse wrappers."""
        self.given: list[str] = []
        """The pods that were offered wrappers, each time."""
        self.libraries: dict[str, list[Object]] = {}
        """Libraries of the pods' images, by the pools' names."""
        self.listed = 0
        """How often supervisors listed the libraries of their images."""
        self.protocols: object = list(PROTOCOLS)
        """Versions of the protocol that supervisors name; None if they name none."""
        self.attack: Attack | None = None
        """Returns what answers a request instead of the supervisor, or None."""

    def note(self) -> None:
        """Do what a change that is not in an object asks for."""


class FakeSupervisor:
    """One pod's supervisor: accepts executions, replays the last one's events, and follows as `say` adds more.

    A test sets `id` and calls `say` itself, or lets an accepted job run: the code's first word says what it does. It
    serves one execution, or one owner as a real one does: again after `recycle`, or at once in a session.
    """

    def __init__(self, *, key: bytes, namespace: str, pod: str, stage: Stage | None = None) -> None:
        self.pod = pod
        self.id: str | None = None
        self.job: Object | None = None
        self.accepted: list[str] = []
        """Ids of all jobs."""
        self.recycled: list[str] = []
        """Ids of the executions that it was cleaned after."""
        self.not_clean = False
        """Whether it can't be cleaned."""
        self.alive = True
        """Whether its session's interpreter lives."""
        self.memory_bytes = 20_000_000
        """Memory of its session's interpreter."""
        self.events: list[Object] = []
        self.raw: list[bytes] = []
        """Lines that precede the events of each stream."""
        self.readers = 0
        self.asked_from: list[int] = []
        """The first sequence number of each stream."""
        self.port = 0
        self.broken = False
        """Whether it breaks every connection."""
        self.frozen = False
        """Whether it answers nothing and its connections stay open, like on a node without power."""
        self.questioned = asyncio.Event()
        """Set after a request for its state."""
        self.extensions: list[float] = []
        """Seconds that the run may exceed its time limit by, as they were sent."""
        self.wrappers: str | None = None
        self.puts = 0
        """How often it was given wrappers."""
        self.play: asyncio.Task[None] | None = None
        self._stage = stage or Stage()
        self._token = supervisor_token(key=key, namespace=namespace, pod=pod)
        self._cancelled = asyncio.Event()
        self._changed = asyncio.Event()

    @asynccontextmanager
    async def running(self, *, host: str = "127.0.0.1", port: int | None = None) -> AsyncIterator["FakeSupervisor"]:
        """Serve at an address, by default at a port of its own."""
        app = web.Application()
        add_routes(app, lambda request: self)
        async with TestServer(app, host=host, port=port) as server:
            assert server.port is not None
            self.port = server.port
            yield self
            await self.vanish()

    @property
    def state(self) -> str:
        """`idle`, `running` or `finished`."""
        if self.id is None or self.id in self.recycled:
            return "idle"
        if not self.events or self.events[-1]["type"] != "end":
            return "running"
        return "idle" if self.is_session and self.alive else "finished"

    @property
    def owner(self) -> str | None:
        """Whom it serves."""
        return self.job.get("owner") if self.job is not None else None

    @property
    def is_session(self) -> bool:
        """Whether its last job belonged to a session."""
        return self.job is not None and self.job.get("session", False) is True

    def say(self, kind: str, /, **fields: Any) -> None:
        """Add an event."""
        event = {"seq": len(self.events) + 1, "at": datetime.now(UTC).isoformat(), "type": kind, **fields}
        self.events.append(event)
        self._wake()

    def break_off(self) -> None:
        """Break all connections, now and until `broken` is false."""
        self.broken = True
        self._wake()

    async def vanish(self) -> None:
        """End as its pod does."""
        self.break_off()
        if self.play is not None:
            self.play.cancel()

    async def handle(self, name: str, request: web.Request) -> web.StreamResponse:
        """Answer a request to the route of this name."""
        if self._stage.attack is not None and (play := self._stage.attack(self, name, request)) is not None:
            return await play(request, self._stage.steps.over)
        return await self.answer(name, request)

    async def answer(self, name: str, request: web.Request) -> web.StreamResponse:
        """Answer a request as a supervisor does."""
        if name not in ("health", "prove") and request.headers.get("Authorization") != f"Bearer {self._token}":
            return web.json_response({"error": "no"}, status=401)
        if self.broken:
            return break_connection(request)
        if self.frozen:
            await self._stage.steps.over.wait()
        handlers: dict[str, Callable[[web.Request], Awaitable[web.StreamResponse]]] = {
            "health": self._health,
            "prove": self._prove,
            "accept": self._accept,
            "state": self._state,
            "events": self._events,
            "cancel": self._cancel,
            "extend": self._extend,
            "recycle": self._recycle,
            "session": self._describe_session,
            "libraries": self._list_libraries,
            "wrappers": self._take_wrappers,
        }
        return await handlers[name](request)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _end(self, phase: str, reason: str = "", error: Object | None = None) -> None:
        self.say("end", phase=phase, reason=reason, error=error, stdoutBytes=2, runMs=0.5)

    async def _run(self, job: Object) -> None:
        """Do what the first word of the job's code says."""
        self._stage.ran.append(job["id"])
        self.say("status", phase="Running")
        word, _, rest = job["code"].partition(" ")
        if word in ("print", "from"):  # `from skills.NAME import run` is the code of a reference
            self.say("stdout", text=rest + "\n")
            self._end("Succeeded")
        elif word == "value":
            self.say("result", value=json.loads(rest), truncated=False)
            self._end("Succeeded")
        elif word == "raise":
            reason = rest.partition(" ")[0]
            self._end("Failed", reason, {"type": reason, "message": "so it is", "line": 1})
        elif word == "interrupt":  # an exception without a message
            self._end("Failed", "UserError", {"type": "KeyboardInterrupt", "message": "", "line": 1})
        elif word == "ask":  # a call waits for an approval until it is released
            self.say("approval", id="approval-0000000000000001", tool="github.create_issue", expiresAt=None)
            await self._stage.release.wait()
            self._end("Succeeded")
        elif word == "say":
            for event in json.loads(rest):
                self.say(event.pop("kind"), **event)
        else:  # wait: until it is released or cancelled
            self.say("stdout", text="waiting\n")
            released = asyncio.create_task(self._stage.release.wait())
            stopped = asyncio.create_task(self._cancelled.wait())
            await asyncio.wait({released, stopped}, return_when=asyncio.FIRST_COMPLETED)
            self._end(*(("Cancelled", "Cancelled") if stopped.done() else ("Succeeded",)))
            released.cancel()
            stopped.cancel()

    async def _health(self, request: web.Request) -> web.StreamResponse:
        named = {} if self._stage.protocols is None else {"protocols": self._stage.protocols}
        return web.json_response({"state": self.state, "wrappers": self.wrappers, **named})

    async def _prove(self, request: web.Request) -> web.StreamResponse:
        nonce, address = request.query["nonce"], normalize_address(request.remote or "")
        proof = compute_proof(key=token_digest(self._token), nonce=nonce, address=address)
        return web.json_response({"proof": proof, "address": address})

    async def _take_wrappers(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.puts += 1
        self._stage.given.append(self.pod)
        if self.state != "idle" or self._stage.refuse_wrappers:
            return web.json_response({"error": "not now"}, status=409)
        self.wrappers = body["hash"]
        self._stage.note()
        return web.json_response({"hash": self.wrappers})

    async def _accept(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        await self._stage.steps("before run")
        if self.id is not None and self._is_refused(body):
            gone = self.is_session and not self.alive and body["id"] not in self.accepted
            return web.json_response({"error": "used", "id": self.id}, status=410 if gone else 409)
        self.job, self.id, self.events = body, body["id"], []
        self._stage.jobs.append(body)
        self._cancelled.clear()
        self.accepted.append(body["id"])
        self.play = asyncio.create_task(self._run(body))
        await self._stage.steps("after run")
        return await self._stream(request, 1)

    async def _state(self, request: web.Request) -> web.StreamResponse:
        self.questioned.set()
        uses = len(self.accepted)
        return web.json_response({"state": self.state, "id": self.id, "lastSeq": len(self.events), "uses": uses})

    async def _events(self, request: web.Request) -> web.StreamResponse:
        if self.id is None or request.headers.get(EXECUTION_HEADER, self.id) != self.id:
            return web.json_response({"error": "idle"}, status=404)
        first = int(request.query.get("from", "1"))
        self.asked_from.append(first)
        return await self._stream(request, first)

    def _is_refused(self, body: Object) -> bool:
        """Return whether a job can't follow the last one."""
        if body["id"] in self.accepted or body.get("owner") is None or body["owner"] != self.owner:
            return True
        return self.state != "idle" or (self.id not in self.recycled and not body.get("session"))

    async def _recycle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        await self._stage.steps("recycle")
        if body["id"] != self.id or self.owner is None or self.state == "running":
            return web.json_response({"error": "not now", "id": self.id}, status=409)
        if self.not_clean:
            return web.json_response({"error": "it can't be cleaned"}, status=500)
        if body["id"] not in self.recycled:
            self.recycled.append(body["id"])
        self.alive = True
        return web.json_response({"state": "idle", "uses": len(self.accepted), "cleanMs": 1.5})

    async def _describe_session(self, request: web.Request) -> web.StreamResponse:
        if not self.is_session:
            return web.json_response({"error": "no session"}, status=404)
        fields = {"executions": len(self.accepted), "memoryBytes": self.memory_bytes, "alive": self.alive}
        return web.json_response(fields)

    async def _list_libraries(self, request: web.Request) -> web.StreamResponse:
        self._stage.listed += 1
        self._stage.note()
        libraries = self._stage.libraries.get(self.pod.rpartition("-")[0], [])
        return web.json_response({"python": "3.11.2", "libraries": libraries})

    async def _cancel(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get(EXECUTION_HEADER, self.id) != self.id:
            return web.json_response({"error": "another"}, status=409)
        self._cancelled.set()
        return web.json_response({}, status=202)

    async def _extend(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if body["id"] != self.id or self.state != "running":
            return web.json_response({"error": "another"}, status=409)
        self.extensions.append(body["seconds"])
        self._stage.note()
        return web.json_response({"seconds": body["seconds"]})

    async def _stream(self, request: web.Request, first: int) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        for line in self.raw:
            await response.write(line)
        sent, events = first - 1, self.events
        self.readers += 1
        try:
            while True:
                changed = self._changed
                for event in events[sent:]:
                    sent += 1
                    await self._stage.steps(f"event {event['type']}")
                    if self._breaks_at(sent):
                        return break_connection(request)
                    await response.write(json.dumps(event).encode() + b"\n")
                    if event["type"] == "end":
                        return response
                if self.broken:
                    return break_connection(request)
                await changed.wait()
        finally:
            self.readers -= 1

    def _breaks_at(self, sent: int) -> bool:
        breaks = self._stage.break_at in ((self.pod, sent), ("", sent))
        if breaks:
            self._stage.break_at = None
        return breaks


def break_connection(request: web.Request) -> web.Response:
    """Close the connection without an answer, if the client has not."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def add_routes(app: web.Application, find: Callable[[web.Request], FakeSupervisor | None]) -> None:
    """Add the supervisors' routes. `find` returns the supervisor at the address that the client connected to."""
    for method, path, name in (
        ("GET", "/healthz", "health"),
        ("GET", PROOF_PATH, "prove"),
        ("POST", "/v1/execution", "accept"),
        ("GET", "/v1/execution", "state"),
        ("GET", "/v1/execution/events", "events"),
        ("DELETE", "/v1/execution", "cancel"),
        ("PUT", "/v1/execution/extension", "extend"),
        ("POST", "/v1/recycle", "recycle"),
        ("GET", "/v1/session", "session"),
        ("GET", "/v1/libraries", "libraries"),
        ("PUT", "/v1/wrappers", "wrappers"),
    ):

        async def handle(request: web.Request, name: str = name) -> web.StreamResponse:
            supervisor = find(request)
            return break_connection(request) if supervisor is None else await supervisor.handle(name, request)

        app.router.add_route(method, path, handle)
