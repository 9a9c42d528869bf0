"""A cluster on loopback for the operator: API server, a node that starts pods at once, supervisors in them.

Everything that the operator does to it is a step, counted; at any step the operator can be killed.
"""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from aiohttp import web

from mcp_exec_api.constants import (
    ANNOTATION_CALLER_PROOF,
    ANNOTATION_CREATED,
    ANNOTATION_CREATED_BY,
    ANNOTATION_LIMITED_TOOLS,
    ANNOTATION_SEAL,
    EXECUTIONS,
    LABEL_CALLER,
    POOLS,
    SESSIONS,
)
from mcp_exec_api.meta import micro_time, now
from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.kube.client import custom_resource_path, resource_path
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.sandbox_keys import SandboxKeys, read_keys
from mcp_exec_common.supervisor.tokens import supervisor_token, token_digest
from tests.support.api_server import FakeApiServer, answer_status
from tests.support.constants import DEADLINE, SANDBOX_KEY
from tests.support.supervisor import FakeSupervisor, Stage, add_routes
from tests.support.until import describe

NAMESPACE = "agents"
_LOOK_SECONDS = 0.05
ACCOUNT = "ann@example.com"
"""Account of Kubernetes that creates what no caller of the gateway does, unless a test names another or none."""
KEY = SANDBOX_KEY
CEX = custom_resource_path(EXECUTIONS, namespace=NAMESPACE)
SBP = custom_resource_path(POOLS, namespace=NAMESPACE)
SBS = custom_resource_path(SESSIONS, namespace=NAMESPACE)
PODS = resource_path("pods", namespace=NAMESPACE)
POLICIES = resource_path("networkpolicies", namespace=NAMESPACE, group="networking.k8s.io/v1")
NODES = resource_path("nodes")
NAMESPACES = resource_path("namespaces")
SYSTEM = "mcp-exec-system"
SECRETS = resource_path("secrets", namespace=SYSTEM)
LEASES = resource_path("leases", namespace=SYSTEM, group="coordination.k8s.io/v1")
DEPLOYMENTS = resource_path("deployments", namespace=SYSTEM, group="apps/v1")
BINDINGS = resource_path("rolebindings", namespace=NAMESPACE, group="rbac.authorization.k8s.io/v1")
KEY_SECRET = "sandbox-key"
EVENTS = resource_path("events", namespace=NAMESPACE)

_OWN_METADATA = ("labels", "annotations")


def sandbox_key_secret() -> Object:
    """Return the Secret with the sandbox key."""
    return {"metadata": {"name": KEY_SECRET}, "data": {"key": base64.b64encode(KEY).decode()}}


class World(FakeApiServer, Stage):
    """The API server, with conflicts, JSON patches, preconditions and a kubelet of its own."""

    def __init__(self) -> None:
        FakeApiServer.__init__(self)
        Stage.__init__(self)
        self.supervisors: dict[str, FakeSupervisor] = {}
        """The supervisors of the pods that run, by address."""
        self.start_pods = True
        """Whether the node starts pods."""
        self.node = "node1"
        """The node of the pods that start now."""
        self.port = 0
        self.webhook: Callable[[Object], None] = lambda pod: None
        """Changes each new pod, as an admission webhook does."""
        self.refuse_pods: tuple[int, str] | None = None
        """The code and message of the refusal of each new pod."""
        self._sites: dict[str, web.TCPSite] = {}
        self._runner: web.AppRunner | None = None

    @asynccontextmanager
    async def up(self) -> AsyncIterator["World"]:
        app = web.Application()
        add_routes(app, self._find_supervisor)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
        await self._runner.setup()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._runner.cleanup)
            first = web.TCPSite(self._runner, "127.0.0.1", 0)
            await first.start()
            self.port = self._runner.addresses[0][1]
            await stack.enter_async_context(self.running())
            self.put(SECRETS, sandbox_key_secret())
            try:
                yield self
            finally:
                self.steps.over.set()
                self.release.set()
                for supervisor in self.supervisors.values():
                    await supervisor.vanish()
                plays = [each.play for each in self.supervisors.values() if each.play is not None]
                await asyncio.gather(*plays, *self._tasks, return_exceptions=True)

    # what tests do

    def pool(self, **spec: Any) -> Object:
        given = {"image": "sandbox", "warm": {"min": 1}} | spec
        return self.put(SBP, {"metadata": {"name": "default", "generation": 1}, "spec": given})

    def execution(
        self,
        name: str,
        code: str = "print 1",
        *,
        caller: str = "",
        forged: bool = False,
        account: str = ACCOUNT,
        has_limited_tools: bool = False,
        **spec: Any,
    ) -> str:
        given = {
            "code": code,
            "poolRef": {"name": "default"},
            "timeoutSeconds": 30,
            "limits": {"outputBytes": 65536},
            "ttlSecondsAfterFinished": 3600,
            "cancelRequested": False,
        }
        metadata: Object = {"name": name, "namespace": NAMESPACE, "generation": 1}
        body = {"metadata": metadata, "spec": given | spec}
        if not caller and account:  # as admission policies have it
            metadata["annotations"] = {ANNOTATION_CREATED_BY: account}
        if caller:  # as the gateway writes it
            metadata |= {"labels": {LABEL_CALLER: caller}, "annotations": {ANNOTATION_CREATED: micro_time(now())}}
            metadata["annotations"] |= {ANNOTATION_LIMITED_TOOLS: "true"} if has_limited_tools else {}
            metadata["annotations"][ANNOTATION_CALLER_PROOF] = (
                "" if forged else Attestor(keys=SandboxKeys(*self.sandbox_keys())).sign_caller(body)
            )
        return str(self.put(CEX, body)["metadata"]["uid"])

    def session(
        self, name: str, /, *, caller: str = "", account: str = ACCOUNT, key: bytes = b"", **spec: Any
    ) -> Object:
        metadata: Object = {"name": name, "namespace": NAMESPACE, "generation": 1}
        if not caller and account:
            metadata["annotations"] = {ANNOTATION_CREATED_BY: account}
        body = {"metadata": metadata, "spec": spec}
        if caller:  # as the gateway writes it
            metadata |= {"labels": {LABEL_CALLER: caller}, "annotations": {ANNOTATION_CREATED: micro_time(now())}}
            attestor = Attestor(keys=SandboxKeys(key or self.sandbox_keys()[0]))
            metadata["annotations"][ANNOTATION_CALLER_PROOF] = attestor.sign_caller(body)
        return self.put(SBS, body)

    def session_status(self, name: str) -> Object:
        return self.collections.get(SBS, {}).get(name, {}).get("status") or {}

    def status(self, name: str) -> Object:
        return self.collections.get(CEX, {}).get(name, {}).get("status") or {}

    def pods(self) -> dict[str, Object]:
        return self.collections.get(PODS, {})

    def condition(self, kind: str) -> Object:
        found = (self.collections[SBP]["default"].get("status") or {}).get("conditions") or []
        return next((each for each in found if each["type"] == kind), {})

    async def until(self, holds: Callable[[], object], *, what: str = "") -> None:
        """Return when something holds. It looks whenever an object changes, and often for what is no object."""
        try:
            async with asyncio.timeout(DEADLINE), self._changed:
                while not holds():
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_LOOK_SECONDS):
                            await self._changed.wait()
        except TimeoutError as error:
            message = describe(holds, what=what, value=holds(), seconds=DEADLINE, state=self.describe)
            raise AssertionError(message) from error

    def describe(self) -> str:
        """Return the state of the cluster, as a failed wait shows it."""
        pods = {name: (pod.get("status") or {}).get("phase") for name, pod in self.pods().items()}
        executions = {name: item.get("status") for name, item in self.collections.get(CEX, {}).items()}
        pools = {name: item.get("status") for name, item in self.collections.get(SBP, {}).items()}
        sessions = {name: item.get("status") for name, item in self.collections.get(SBS, {}).items()}
        state = {
            "pods": pods,
            "executions": executions,
            "sessions": sessions,
            "pools": pools,
            "ran": self.ran,
            "faults": self.faults,
        }
        last = [f"{seen.method} {seen.path}" for seen in self.seen[-5:]]
        return "\n".join(f"{name}: {value}" for name, value in {**state, "last requests": last}.items())

    def pool_status(self) -> Object:
        return self.collections[SBP]["default"].get("status") or {}

    async def finished(self, name: str) -> Object:
        await self.until(lambda: self.status(name).get("finishedAt"))
        return self.status(name)

    async def warm(self, count: int) -> None:
        """Return when the pool's status counts so many warm pods."""
        await self.until(lambda: (self.collections[SBP]["default"].get("status") or {}).get("warm") == count)

    async def sealed(self) -> None:
        """Return when the next operator can recognize all pods that this one created."""

        def are_sealed() -> bool:
            own = [pod["metadata"] for pod in self.pods().values() if pod["metadata"].get("ownerReferences")]
            return all(ANNOTATION_SEAL in metadata["annotations"] for metadata in own)

        await self.until(are_sealed)

    def note(self) -> None:
        """Make `until` look again after a change that is not in an object."""
        self._spawn(self._tell())

    def own_tasks(self) -> set[asyncio.Task[Any]]:
        """Return the tasks of the cluster, which are not the operator's."""
        plays = {each.play for each in self.supervisors.values() if each.play is not None}
        return {*self._tasks, *plays}

    def change_node(self, name: str, *, ready: str = "True", cordoned: bool = False) -> None:
        """Set a node's state."""
        conditions = [{"type": "Ready", "status": ready, "reason": "Arranged"}]
        spec = {"unschedulable": True} if cordoned else {}
        self.put(NODES, {"metadata": {"name": name}, "spec": spec, "status": {"conditions": conditions}})

    # what it does

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        watched, _, name = request.path.partition("/watch/namespaces/")
        if name:  # the path for a single object
            query = {**request.query, "fieldSelector": f"metadata.name={name}"}
            request = request.clone(rel_url=request.rel_url.with_path(f"{watched}/namespaces").with_query(query))
        return await super()._watch(request)

    def _find_supervisor(self, request: web.Request) -> FakeSupervisor | None:
        assert request.transport is not None
        return self.supervisors.get(request.transport.get_extra_info("sockname")[0])

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        writes = request.method in ("POST", "PUT", "PATCH", "DELETE")
        label = f"{request.method} {request.path.split('/')[-2 if request.path.endswith('/status') else -1]}"
        if writes:
            await self.steps(f"before {label}")
        answer = await super()._handle(request)
        if writes:
            await self.steps(f"after {label}")
        return answer

    def _answer(self, request: web.Request, body: Any) -> web.Response:
        collection, _, name = request.path.removesuffix("/status").rpartition("/")
        if request.method == "POST" and request.path == PODS and self.refuse_pods is not None:
            return answer_status(self.refuse_pods[0], "Forbidden", self.refuse_pods[1])
        if request.method == "POST":
            _fill(request.path, body, number=self.version)
        if request.method == "POST" and request.path == PODS:
            self.webhook(body)
            answer = super()._answer(request, body)
            self._start_pod(body["metadata"]["name"])
            return answer
        found = self.collections.get(collection, {}).get(name)
        required = (body.get("metadata") or {}).get("uid") if request.method == "PATCH" and type(body) is dict else None
        if found is not None and required not in (None, found["metadata"]["uid"]):
            return answer_status(409, "Conflict", "the UID in the precondition does not match")
        if request.method == "PATCH" and found is not None and isinstance(body, list):
            return self._json_patch(collection, found, body)
        if request.method == "PUT" and found is not None and not request.path.endswith("/status"):
            return self._replace(collection, found, body)
        if request.method == "PUT" and found is not None:
            return self._replace_status(collection, found, body)
        if request.method == "DELETE" and found is not None:
            wanted = (body.get("preconditions") or {}).get("uid")
            if wanted not in (None, found["metadata"]["uid"]):
                return answer_status(409, "Conflict", "the UID in the precondition does not match")
            self.remove(collection, name)
            return web.json_response({"kind": "Status", "status": "Success"})
        return super()._answer(request, body)

    def remove(self, collection: str, name: str) -> None:
        if collection == PODS:
            self._stop_supervisor(name)
        super().remove(collection, name)

    def _json_patch(self, collection: str, found: Object, patch: list[Object]) -> web.Response:
        changed = json.loads(json.dumps(found))
        for each in patch:
            if each["path"] == "/metadata/resourceVersion":
                if each["value"] != found["metadata"]["resourceVersion"]:
                    return answer_status(409, "Conflict", "the object has been modified")
            else:
                *parents, name = each["path"].strip("/").split("/")
                target = changed
                for parent in parents:
                    target = target[parent]
                target[name] = each["value"]
        return web.json_response(self.put(collection, changed))

    def _replace_status(self, collection: str, found: Object, body: Object) -> web.Response:
        if body["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
            return answer_status(409, "Conflict", "the object has been modified")
        return web.json_response(self.put(collection, json.loads(json.dumps(found)) | {"status": body["status"]}))

    def _replace(self, collection: str, found: Object, body: Object) -> web.Response:
        """Replace an object like the API server: a changed spec is a new generation, the status stays."""
        if body["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
            return answer_status(409, "Conflict", "the object has been modified")
        same_spec = found.get("spec") == body.get("spec")
        if same_spec and all(found["metadata"].get(name) == body["metadata"].get(name) for name in _OWN_METADATA):
            return web.json_response(found)
        generation = found["metadata"].get("generation", 1) + (not same_spec)
        metadata = {**found["metadata"], **body["metadata"], "generation": generation}
        return web.json_response(self.put(collection, {**found, **body, "metadata": metadata}))

    def _start_pod(self, name: str) -> None:
        if self.start_pods:
            self._spawn(self.start_pod(name))

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def start_pod(self, name: str) -> None:
        """Run a pod like scheduler and kubelet, at an address where its supervisor answers."""
        address = f"127.1.{len(self._sites) // 200}.{len(self._sites) % 200 + 1}"
        assert self._runner is not None
        site = self._sites[address] = web.TCPSite(self._runner, address, self.port)
        await site.start()
        pod = self.pods().get(name)
        if pod is None:
            return
        variables = {each["name"]: each["value"] for each in pod["spec"]["containers"][0]["env"]}
        digest = variables["MCP_EXEC_TOKEN_SHA256"]
        keys = [key for key in self.sandbox_keys() if digest == token_digest(_build_token(key, name))]
        if not keys:  # it was requested with a key that was withdrawn since: nobody can reach it
            return
        (key,) = keys
        self.supervisors[address] = FakeSupervisor(key=key, namespace=NAMESPACE, pod=name, stage=self)
        status = {"phase": "Running", "podIP": address, "containerStatuses": [{"state": {"running": {}}}]}
        self.merge(PODS, name, {"spec": {"nodeName": self.node}, "status": status})

    def sandbox_keys(self) -> tuple[bytes, ...]:
        """Return the keys in the Secret, the signing one first; KEY if a test has removed it."""
        secret = self.collections[SECRETS].get(KEY_SECRET) or sandbox_key_secret()
        return read_keys({entry: base64.b64decode(key) for entry, key in secret["data"].items()})

    def put_keys(self, entries: Mapping[str, bytes]) -> None:
        """Replace the keys in the Secret, as its owner does."""
        data = {entry: base64.b64encode(key).decode() for entry, key in entries.items()}
        known = self.collections[SECRETS][KEY_SECRET]
        self.put(SECRETS, {**known, "data": data})

    def kill_pod(self, name: str, status: Object) -> None:
        """End the pod's container and its supervisor."""
        self._stop_supervisor(name)
        self.merge(PODS, name, {"status": status})

    def silence(self, name: str) -> None:
        """Break the pod's connections and close its address. Its object does not change."""
        self._stop_supervisor(name)

    def supervisor_of(self, execution: str) -> FakeSupervisor:
        pod = self.status(execution)["podName"]
        return next(each for each in self.supervisors.values() if each.pod == pod)

    def _stop_supervisor(self, name: str) -> None:
        for address, supervisor in list(self.supervisors.items()):
            if supervisor.pod == name:
                del self.supervisors[address]
                self._spawn(supervisor.vanish())


def _build_token(key: bytes, pod: str) -> str:
    return supervisor_token(key=key, namespace=NAMESPACE, pod=pod)


def _fill(path: str, body: Object, *, number: int) -> None:
    """Add what the API server adds to a new object."""
    if "name" not in body["metadata"]:
        body["metadata"]["name"] = f"{body['metadata']['generateName']}{number}"
    if path.endswith("/deployments"):
        body["metadata"]["generation"] = 1
    if path.endswith("/services"):
        body["spec"]["clusterIP"] = "10.0.0.7"
