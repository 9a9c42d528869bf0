"""A sandbox's supervisor on loopback that tells what the test gives it, when the test says so."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from mcp_exec_common.supervisor.tokens import supervisor_token


class FakeSupervisor:
    """Has accepted execution `id`; replays `events`, and follows as `say` adds more."""

    def __init__(self, *, key: bytes, namespace: str, pod: str) -> None:
        self.id: str | None = None
        self.events: list[dict[str, Any]] = []
        self.raw: list[bytes] = []
        self.readers = 0
        self.asked_from: list[int] = []
        self.port = 0
        self.broken = False
        self._token = supervisor_token(key=key, namespace=namespace, pod=pod)
        self._changed = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["FakeSupervisor"]:
        app = web.Application()
        app.router.add_get("/v1/execution", self._state)
        app.router.add_get("/v1/execution/events", self._events)
        async with TestServer(app, host="127.0.0.1") as server:
            assert server.port is not None
            self.port = server.port
            yield self
            self.broken = True
            self._wake()

    def say(self, kind: str, /, **fields: Any) -> None:
        """Adds an event."""
        event = {"seq": len(self.events) + 1, "at": "2026-11-21T20:00:00.000000Z", "type": kind, **fields}
        self.events.append(event)
        self._wake()

    def break_off(self) -> None:
        """Cuts all readers off, and all that come until `broken` is false again."""
        self.broken = True
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _check(self, request: web.Request) -> None:
        if request.headers.get("Authorization") != f"Bearer {self._token}":
            raise web.HTTPUnauthorized
        if self.broken:
            assert request.transport is not None
            request.transport.abort()

    async def _state(self, request: web.Request) -> web.Response:
        self._check(request)
        state = "running" if self.id else "idle"
        return web.json_response({"state": state, "id": self.id, "lastSeq": len(self.events)})

    async def _events(self, request: web.Request) -> web.StreamResponse:
        self._check(request)
        if self.id is None:
            raise web.HTTPNotFound
        sent = int(request.query["from"]) - 1
        self.asked_from.append(sent + 1)
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        for line in self.raw:
            await response.write(line)
        self.readers += 1
        try:
            while True:
                changed = self._changed
                for event in self.events[sent:]:
                    await response.write(json.dumps(event).encode() + b"\n")
                    sent += 1
                    if event["type"] == "end":
                        return response
                if self.broken:
                    assert request.transport is not None
                    request.transport.abort()
                    return response
                await changed.wait()
        finally:
            self.readers -= 1
