"""The Kubernetes client and the reflector with a scripted API server."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from tests.support.pace import paced

from mcp_exec_common.kube.client import KubeClient, resource_path
from mcp_exec_common.kube.credentials import KubeCredentials
from mcp_exec_common.kube.errors import ApiError, ApiUnreachable
from mcp_exec_common.kube.reflector import Reflector

PODS = resource_path("pods", namespace="agents")
Answer = tuple[int, dict[str, Any]] | list[dict[str, Any]] | None


class Script:
    """Scripted responses in order: a status and body, a list of watch events, or None for a broken connection."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = deque(answers)
        self.seen: list[web.Request] = []
        self.connections: set[asyncio.Transport | None] = set()
        self.exhausted = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request)
        self.connections.add(request.transport)
        if not self.answers:
            self.exhausted.set()
            await asyncio.Event().wait()
        answer = self.answers.popleft()
        if answer is None:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if isinstance(answer, list):
            return web.Response(text="".join(json.dumps(event) + "\n" for event in answer))
        return web.json_response(answer[1], status=answer[0])


@asynccontextmanager
async def served(script: Script) -> AsyncIterator[KubeClient]:
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", script.handle)
    async with (
        TestServer(app) as server,
        aiohttp.ClientSession(base_url=server.make_url("/")) as session,
        asyncio.timeout(paced(20)),
    ):
        yield KubeClient(session=session, credentials=KubeCredentials(server=""), retry_delays=(0.001, 0.001))


def refusal(code: int, reason: str, *, message: str = "") -> Answer:
    return code, {"kind": "Status", "code": code, "reason": reason, "message": message or f"it is {reason}"}


async def test_a_busy_server_is_asked_again_over_the_same_connection() -> None:
    # the body is larger than what arrives together with the head
    script = Script(refusal(429, "TooManyRequests", message="x" * 4_000_000), (200, {"ok": True}))
    async with served(script) as kube:
        await kube.get(PODS)
    assert len(script.connections) == 1


async def test_a_busy_server_is_retried() -> None:
    async with served(Script(refusal(429, "TooManyRequests"), refusal(503, "Down"), (200, {"ok": True}))) as kube:
        assert await kube.get(PODS) == {"ok": True}


async def test_a_server_that_stays_busy_is_an_error() -> None:
    script = Script(*[refusal(429, "TooManyRequests")] * 3)
    async with served(script) as kube:
        with pytest.raises(ApiError, match="TooManyRequests") as caught:
            await kube.get(PODS)
    assert (caught.value.code, len(script.seen)) == (429, 3)


async def test_a_refusal_has_the_servers_reason() -> None:
    async with served(Script(refusal(409, "Conflict"))) as kube:
        with pytest.raises(ApiError) as caught:
            await kube.patch(f"{PODS}/a", {})
    assert (caught.value.reason, caught.value.message) == ("Conflict", "it is Conflict")


async def test_a_creation_whose_answer_was_lost_is_not_repeated() -> None:
    script = Script(None, (201, {}))
    async with served(script) as kube:
        with pytest.raises(ApiUnreachable):
            await kube.create(PODS, {})
    assert len(script.seen) == 1


async def test_a_patch_whose_answer_was_lost_is_repeated() -> None:
    async with served(Script(None, (200, {"ok": True}))) as kube:
        assert await kube.patch(f"{PODS}/a", {}) == {"ok": True}


async def test_a_replacement_whose_answer_was_lost_is_repeated() -> None:
    async with served(Script(None, refusal(409, "Conflict"))) as kube:
        with pytest.raises(ApiError, match="Conflict"):
            await kube.replace(f"{PODS}/a/status", pod("a", 1))


async def test_the_deletion_of_a_missing_object_succeeds() -> None:
    async with served(Script(refusal(404, "NotFound"), refusal(409, "Conflict"), refusal(403, "Forbidden"))) as kube:
        await kube.delete(f"{PODS}/a")
        await kube.delete(f"{PODS}/a", uid="another")
        with pytest.raises(ApiError, match="Forbidden"):
            await kube.delete(f"{PODS}/a")


def pod(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"namespace": "agents", "name": name, "resourceVersion": str(version)}}


def page(*items: dict[str, Any], version: int, token: str = "") -> Answer:
    return 200, {"metadata": {"resourceVersion": str(version), "continue": token}, "items": list(items)}


async def test_a_list_is_read_page_by_page() -> None:
    script = Script(page(pod("a", 1), version=3, token="next"), page(pod("b", 2), version=3))
    async with served(script) as kube:
        items, version = await kube.list(PODS)
    assert ([item["metadata"]["name"] for item in items], version) == (["a", "b"], "3")
    assert script.seen[1].query["continue"] == "next"


async def test_a_reflector_reports_objects_that_were_deleted_between_watches() -> None:
    expired = {"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}
    script = Script(
        page(pod("a", 1), pod("b", 2), version=2),
        [{"type": "MODIFIED", "object": pod("a", 3)}, {"type": "BOOKMARK", "object": pod("", 4)}, expired],
        page(pod("c", 5), version=5),
    )
    told: list[tuple[str, bool]] = []
    async with served(script) as kube:
        reflector = Reflector(
            kube=kube, path=PODS, on_change=lambda item, deleted: told.append((item["metadata"]["name"], deleted))
        )
        async with reflector.run_in_background():
            await script.exhausted.wait()
            assert list(reflector.items) == [("agents", "c")]
    assert told == [("a", False), ("b", False), ("a", False), ("c", False), ("a", True), ("b", True)]


async def test_a_reflector_resumes_from_the_end_of_its_watch() -> None:
    script = Script(page(version=1), [{"type": "ADDED", "object": pod("a", 7)}], [])
    async with served(script) as kube, Reflector(kube=kube, path=PODS).run_in_background():
        await script.exhausted.wait()
    assert [request.query.get("resourceVersion") for request in script.seen] == [None, "1", "7", "7"]


async def test_a_reflector_lists_again_at_once_when_what_its_listener_decides_by_has_changed() -> None:
    script = Script(page(pod("a", 1), version=1), None, page(pod("a", 1), version=2))
    script.answers[1] = [{"type": "ADDED", "object": pod("b", 7)}]
    told: list[str] = []
    watched = asyncio.Event()

    def take(item: dict[str, Any], deleted: bool) -> None:
        told.append(item["metadata"]["name"])
        if told[-1] == "b":
            watched.set()

    async with served(script) as kube:
        reflector = Reflector(kube=kube, path=PODS, on_change=take)
        reflector.relist()  # before its first list: no other one is needed
        async with reflector.run_in_background():
            await watched.wait()
            reflector.relist()
            await script.exhausted.wait()
    assert told == ["a", "b", "a", "b"]
    assert [request.query.get("resourceVersion") for request in script.seen] == [None, "1", None, "2"]


async def test_a_reflector_that_leaves_lists_to_another_says_when_its_watch_begins_and_keeps_nothing() -> None:
    expired = [{"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": ""}}]
    script = Script(page(version=1), [{"type": "ADDED", "object": pod("a", 3)}], expired, page(version=4))
    told: list[object] = []
    async with served(script) as kube:
        reflector = Reflector(
            kube=kube,
            path=PODS,
            on_begin=lambda: told.append("begins"),
            on_change=lambda item, deleted: told.append((item["metadata"]["name"], deleted)),
        )
        async with reflector.run_in_background():
            await script.exhausted.wait()
            assert reflector.items == {}
    # nothing is reported as deleted that the second list does not have
    assert told == ["begins", ("a", False), "begins"]
    asked = [(each.query.get("fieldSelector"), each.query.get("resourceVersion")) for each in script.seen]
    nobody = "metadata.name=-"
    assert asked == [(nobody, None), (None, "1"), (None, "3"), (nobody, None), (None, "4")]


async def test_a_reflector_whose_listener_fails_restarts() -> None:
    script = Script(page(pod("a", 1), version=1), page(pod("a", 1), pod("b", 2), version=2))
    told = []

    def take(item: dict[str, Any], deleted: bool) -> None:
        told.append(item["metadata"]["name"])
        if told == ["a"]:
            raise KeyError("status")

    async with served(script) as kube, Reflector(kube=kube, path=PODS, on_change=take).run_in_background() as reflector:
        await script.exhausted.wait()
        assert reflector.synced.is_set()
    assert told == ["a", "a", "b"]


@pytest.mark.parametrize(
    "name",
    ["", "..", ".", "../../b/secrets/x", "a/b", "a%2Fb", "a?b", "a#b", "A", "-a", "a" * 254, "\u0430", "a\n"],
)
def test_no_name_leads_to_another_object_or_namespace(name: str) -> None:
    for given in ({"name": name, "namespace": "a"}, {"name": "x", "namespace": name}):
        with pytest.raises(ApiError) as refused:
            resource_path("secrets", **given)
        assert refused.value.code == 404


def test_every_name_that_an_object_can_have_is_a_path() -> None:
    assert resource_path("pods", namespace="a-1", name="b.c-2") == "/api/v1/namespaces/a-1/pods/b.c-2"
    assert resource_path("pods", name="a" * 253).endswith("a" * 253)


async def test_a_kubeconfig_that_acts_as_another_user_is_not_read_as_its_own(tmp_path: Path) -> None:
    user = {
        "token": "t", "as": "jane", "as-groups": ["dev", "ops"], "as-user-extra": {"example.com/reason": ["on call"]},
    }  # fmt: skip
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "agents"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "other", "user": {}}, {"name": "u", "user": user}],
    }
    (path := tmp_path / "kubeconfig").write_text(json.dumps(config))
    found = await KubeCredentials.from_kubeconfig(path)
    assert found.impersonation == [
        ("Impersonate-User", "jane"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Extra-example.com%2Freason", "on call"),
    ]
