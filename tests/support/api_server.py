"""A Kubernetes API server on loopback: objects of any kind, lists with pages, watches, merge patches, reviews.

Tests change its objects directly (`put`, `merge`, `remove`), look at what it was asked (`seen`), and make it fail
(`faults`). It keeps everything, so a watch from any resource version works.
"""

import asyncio
import json
import re
import uuid
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from aiohttp import web
from aiohttp.test_utils import TestServer

from mcp_exec_api.code_execution import PRINTER_COLUMNS
from tests.support.constants import DEADLINE
from tests.support.until import describe

Object = dict[str, Any]


@dataclass
class Fault:
    """A fault of one request that matches: an error, or a lost answer before or after the request is carried out."""

    method: str
    suffix: str
    what: int | Literal["lost before", "lost after", "busy after"]
    message: str = "so it was arranged"
    details: Object = field(default_factory=dict)
    reason: str = "Arranged"


@dataclass
class Seen:
    """One request."""

    method: str
    path: str
    query: dict[str, str]
    body: Any


class FakeApiServer:
    """The server's state. `url` is where it listens."""

    def __init__(self) -> None:
        self.collections: dict[str, dict[str, Object]] = {}
        self.history: dict[str, list[tuple[int, str, Object]]] = {}
        self.version = 100
        self.seen: list[Seen] = []
        self.faults: list[Fault] = []
        self.held: dict[str, asyncio.Event] = {}
        """Events by collection: a list of it shows the state of when it was asked for, but waits for the event."""
        self.holding: set[asyncio.Event] = set()
        """Events that a list waits for."""
        self.on_create: Callable[[str, Object], None] = lambda collection, item: None
        self.users: dict[str, str] = {}
        self.audiences: list[str] = ["mcp-exec"]
        """Audiences of all tokens."""
        self.rights: set[tuple[str, str, str]] = set()
        self.away = False
        """Whether the server breaks every connection, instead of answering."""
        self.hanging: set[str] = set()
        """Ends of paths whose requests are never answered."""
        self.forbidden: set[str] = set()
        """Parts of paths whose requests are refused with 403, as after the deletion of a RoleBinding."""
        self.unserved: set[str] = set()
        """Groups with versions, such as `discovery.k8s.io/v1`, that the server does not have."""
        self.watches_allowed = asyncio.Event()
        self.watches_allowed.set()
        self.kubernetes = "v1.36.2"
        """Version that it says to be."""
        self.url = ""
        self.compacted = 0
        """Versions below it are too old for a watch."""
        self._expiries = 0
        self._asked = asyncio.Event()
        self._stopped = asyncio.Event()
        self._changed = asyncio.Condition()
        self._watching: set[asyncio.BaseTransport] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["FakeApiServer"]:
        app = web.Application(client_max_size=8 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._handle)
        async with TestServer(app, host="127.0.0.1") as server:
            self.url = str(server.make_url("")).rstrip("/")
            yield self
            self._stopped.set()
            self.drop_watches()

    # what tests do

    def put(self, collection: str, item: Object) -> Object:
        """Create or replace an object."""
        name = item["metadata"]["name"]
        items = self.collections.setdefault(collection, {})
        event = "MODIFIED" if name in items else "ADDED"
        item = deepcopy(item)
        if "/namespaces/" in collection:
            item["metadata"]["namespace"] = collection.split("/namespaces/")[1].split("/")[0]
        item["metadata"].setdefault("uid", str(uuid.uuid4()))
        item["metadata"].setdefault("creationTimestamp", datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
        items[name] = item
        self._record(collection, event, item)
        return item

    def merge(self, collection: str, name: str, patch: Object) -> Object:
        """Patch an object by a merge patch."""
        item = deepcopy(self.collections[collection][name])
        _merge(item, patch)
        return self.put(collection, item)

    def remove(self, collection: str, name: str) -> None:
        """Delete an object."""
        self._record(collection, "DELETED", self.collections[collection].pop(name))

    def drop_watches(self) -> None:
        """Break every watch's connection."""
        for transport in self._watching:
            transport.close()

    def count_watches(self) -> int:
        """Return the number of open watches."""
        return len(self._watching)

    def go_away(self) -> None:
        """Break every connection until `away` is false."""
        self.away = True
        self.drop_watches()

    async def expire_watches(self) -> None:
        """End every watch by an error of code 410, like a server that has dropped the watch's version."""
        self._expiries += 1
        await self._tell()

    async def until_asked(self, holds: Callable[[], object]) -> None:
        """Return when something holds. It looks after each request."""
        try:
            async with asyncio.timeout(DEADLINE):
                while not holds():
                    self._asked.clear()
                    await self._asked.wait()
        except TimeoutError as error:
            last = [f"{seen.method} {seen.path} {seen.query}" for seen in self.seen[-10:]]
            message = describe(holds, what="", value=holds(), seconds=DEADLINE, state=lambda: last)
            raise AssertionError(message) from error

    def asked(self, method: str, suffix: str) -> list[Seen]:
        """Return the requests of this method whose path ends so, without watches."""
        return [
            seen
            for seen in self.seen
            if seen.method == method and seen.path.endswith(suffix) and "watch" not in seen.query
        ]

    def encode(self, item: Object) -> bytes:
        """Return an object as it is sent."""
        return json.dumps(item).encode()

    def answer_item(self, item: Object, *, status: int = 200) -> web.Response:
        """Return an answer with one object."""
        return web.Response(body=self.encode(item), status=status, content_type="application/json")

    def _record(self, collection: str, event: str, item: Object) -> None:
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)
        self.history.setdefault(collection, []).append((self.version, event, deepcopy(item)))
        task = asyncio.get_running_loop().create_task(self._tell())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    # what it answers

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if self.away:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        text = await request.text()
        body = json.loads(text) if text else None
        self.seen.append(Seen(request.method, request.path, dict(request.query), body))
        self._asked.set()
        if request.path.endswith(tuple(self.hanging)):
            await self._stopped.wait()
            return web.Response(status=503)
        if (refusal := self._refuse(request)) is not None:
            return refusal
        fault = next(
            (f for f in self.faults if (f.method, f.suffix) == (request.method, request.path[-len(f.suffix) :])), None
        )
        if fault is not None:
            self.faults.remove(fault)
            if isinstance(fault.what, int):
                return answer_status(fault.what, fault.reason, fault.message, fault.details)
            if fault.what != "lost before":
                self._answer(request, body)
            if fault.what == "busy after":
                return answer_status(504, "Timeout", "request did not complete within the allotted timeout")
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if request.query.get("watch"):
            return await self._watch(request)
        answer = self._answer(request, body)
        if request.method == "GET" and (event := self.held.get(request.path.rpartition("/")[2])) is not None:
            self.holding.add(event)
            self._asked.set()
            await event.wait()
            self.holding.discard(event)
        return answer

    def _refuse(self, request: web.Request) -> web.Response | None:
        if any(part in f"{request.path}/?{request.query_string}" for part in self.forbidden):
            return answer_status(403, "Forbidden", "it is forbidden")
        if any(request.path.startswith(f"/apis/{group}/") for group in self.unserved):
            return web.Response(status=404, text="404 page not found\n")
        return None

    def _answer_about_itself(self, request: web.Request, body: Any) -> web.Response | None:
        """Answer what concerns no stored object: a review, or the version."""
        if request.path == "/version":
            return web.json_response({"major": "1", "gitVersion": self.kubernetes})
        if request.path.endswith("/tokenreviews"):
            return web.json_response({**body, "status": self._token_review(body["spec"])}, status=201)
        if request.path.endswith("/selfsubjectreviews"):
            token = request.headers.get("Authorization", "").removeprefix("Bearer ")
            return web.json_response({"status": {"userInfo": {"username": self.users.get(token, "")}}}, status=201)
        if request.path.endswith("/subjectaccessreviews"):
            return web.json_response({**body, "status": {"allowed": self._is_allowed(body["spec"])}}, status=201)
        return None

    def _answer(self, request: web.Request, body: Any) -> web.Response:
        if (answer := self._answer_about_itself(request, body)) is not None:
            return answer
        parts = request.path.removesuffix("/status").removesuffix("/scale").split("/")
        named = len(parts) % 2 == (1 if parts[1] == "api" else 0)
        collection, name = ("/".join(parts[:-1]), parts[-1]) if named else ("/".join(parts), "")
        if request.method == "POST":
            return self._create(collection, body)
        if not name:
            return self._list(request, collection)
        if name not in self.collections.get(collection, {}):
            return answer_status(404, "NotFound", f"{name} not found")
        wanted = ((body or {}).get("metadata") or {}).get("resourceVersion") if request.method == "PATCH" else None
        if wanted not in (None, self.collections[collection][name]["metadata"]["resourceVersion"]):
            return answer_status(409, "Conflict", "the object has been modified")
        if request.method == "PATCH":
            return self.answer_item(self.merge(collection, name, body))
        if request.method == "DELETE":
            self.remove(collection, name)
            return web.json_response({"kind": "Status", "status": "Success"})
        return self.answer_item(self.collections[collection][name])

    def _create(self, collection: str, body: Object) -> web.Response:
        name = body["metadata"]["name"]
        if name in self.collections.get(collection, {}):
            return answer_status(409, "AlreadyExists", f"{name} already exists")
        item = self.put(collection, body)
        answer = self.answer_item(item, status=201)
        self.on_create(collection, item)
        return answer

    def _is_allowed(self, spec: Object) -> bool:
        """Whether a user has a right: on executions by its verb, on another resource with its name before the verb."""
        wanted = spec["resourceAttributes"]
        assert wanted["group"] == "mcp-exec.dev"
        verb = "/".join(filter(None, (wanted["verb"], wanted.get("subresource"))))
        if wanted["resource"] != "codeexecutions":
            verb = f"{wanted['resource']}: {verb}"
        return (spec["user"], verb, wanted["namespace"]) in self.rights

    def _token_review(self, spec: Object) -> Object:
        user = self.users.get(spec["token"])
        if user is None:
            return {"authenticated": False}
        return {
            "authenticated": True,
            "user": {"username": user, "uid": "u", "groups": ["system:serviceaccounts"], "extra": {}},
            "audiences": [name for name in spec.get("audiences", []) if name in self.audiences],
        }

    def _selected(self, request: web.Request, collection: str) -> list[Object]:
        name = request.query.get("fieldSelector", "").removeprefix("metadata.name=")
        items = self.collections.get(collection, {})
        return [
            items[key]
            for key in ([name] if name else sorted(items))
            if key in items and _has_labels(request, items[key])
        ]

    def _list(self, request: web.Request, collection: str) -> web.Response:
        # by name, as etcd continues: what is deleted between two pages hides no other object
        after, limit = request.query.get("continue", ""), int(request.query.get("limit", "500"))
        left = [item for item in self._selected(request, collection) if item["metadata"]["name"] > after]
        items = left[:limit]
        more = {"continue": items[-1]["metadata"]["name"]} if len(left) > limit else {}
        metadata = {"resourceVersion": str(self.version), **more}
        if "as=Table" in request.headers.get("Accept", ""):
            return web.json_response({"metadata": metadata, **build_table(items)})
        encoded = b", ".join(self.encode(item) for item in items)
        body = b'{"metadata": %s, "items": [%s]}' % (json.dumps(metadata).encode(), encoded)
        return web.Response(body=body, content_type="application/json")

    def _read_history(self, collection: str, since: int) -> list[tuple[int, str, Object]]:
        history = self.history.get(collection, [])
        return history[bisect_right(history, since, key=lambda entry: entry[0]) :]

    def _read_shown(self, request: web.Request, *, until: int) -> dict[str, Object]:
        """Return the selected objects of a version by name."""
        shown: dict[str, Object] = {}
        for version, event, item in self.history.get(request.path, []):
            if version > until:
                break
            shown.pop(item["metadata"]["name"], None)
            if event != "DELETED" and _has_labels(request, item):
                shown[item["metadata"]["name"]] = item
        return shown

    async def _send_present(self, request: web.Request, response: web.StreamResponse, *, name: str) -> None:
        """Send the present objects as added, to a watch without a version."""
        if "resourceVersion" in request.query:
            return
        for item in self.collections.get(request.path, {}).values():
            if name in ("", item["metadata"]["name"]) and _has_labels(request, item):
                await response.write(b'{"type": "ADDED", "object": %s}\n' % self.encode(item))

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        assert request.transport is not None
        transport = request.transport
        self._watching.add(transport)
        name = request.query.get("fieldSelector", "").removeprefix("metadata.name=")
        since, expiries = int(request.query.get("resourceVersion", self.version)), self._expiries
        shown = self._read_shown(request, until=since)
        expiries -= since < self.compacted
        try:
            await self._send_present(request, response, name=name)
            while True:
                await self.watches_allowed.wait()
                if self._expiries > expiries:
                    expired = {
                        "kind": "Status",
                        "code": 410,
                        "reason": "Expired",
                        "message": "too old resource version",
                    }
                    await response.write(json.dumps({"type": "ERROR", "object": expired}).encode() + b"\n")
                    return response
                for version, event, item in self._read_history(request.path, since):
                    since = version
                    if name not in ("", item["metadata"]["name"]):
                        continue
                    before = shown.pop(item["metadata"]["name"], None)
                    if _has_labels(request, item):
                        shown |= {} if event == "DELETED" else {item["metadata"]["name"]: item}
                    elif before is not None:  # it is as it was before it lost its labels
                        version_of = {"resourceVersion": item["metadata"]["resourceVersion"]}
                        event, item = "DELETED", {**before, "metadata": before["metadata"] | version_of}
                    else:
                        continue
                    await response.write(b'{"type": "%s", "object": %s}\n' % (event.encode(), self.encode(item)))
                async with self._changed:
                    newest = (self.history.get(request.path) or [(0, "", {})])[-1][0]
                    if newest <= since and self._expiries == expiries:
                        await self._changed.wait()
        except ConnectionError:
            return response
        finally:
            self._watching.discard(transport)


def _has_labels(request: web.Request, item: Object) -> bool:
    """Whether the request's label selector matches."""
    wanted = dict(part.split("=") for part in request.query.get("labelSelector", "").split(",") if part)
    return wanted.items() <= (item["metadata"].get("labels") or {}).items()


def _merge(target: Object, patch: Object) -> None:
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        elif isinstance(value, dict) and isinstance(target.get(name), dict):
            _merge(target[name], value)
        else:
            target[name] = deepcopy(value)


def build_table(executions: list[Object]) -> Object:
    """Return columns and rows of executions, as the API server shows them."""
    columns: list[Object] = [{"name": "Name", "type": "string", "jsonPath": ".metadata.name"}, *PRINTER_COLUMNS]
    rows = [
        {
            "cells": [_read_path(item, column["jsonPath"]) for column in columns],
            "object": {"kind": "PartialObjectMetadata", "metadata": item["metadata"]},
        }
        for item in executions
    ]
    return {"kind": "Table", "columnDefinitions": columns, "rows": rows}


def _read_path(value: Any, path: str) -> Any:
    """Return what a JSONPath of a printer column selects: fields, `\\.` in their names, and one filter by equality."""
    for step in re.findall(r"\.((?:[^.\\\[]|\\.)+)|\[\?\(@\.(\w+)==\"(\w+)\"\)\]", path):
        name, field_, wanted = step
        if name:
            value = value.get(name.replace("\\.", ".")) if isinstance(value, dict) else None
        else:
            value = next((item for item in value or [] if item.get(field_) == wanted), None)
    return value


def answer_status(code: int, reason: str, message: str, details: Object | None = None) -> web.Response:
    return web.json_response(
        {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details or {}}, status=code
    )
