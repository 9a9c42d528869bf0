"""A broker in this process that can be restarted: its own core over a SQLite file, without network and processes.

The API server and the MCP server are objects in memory. Requests go through both ports' ASGI applications.
"""

import asyncio
import json
import shutil
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import httpx

from mcp_exec_api.constants import EXECUTIONS
from mcp_exec_broker.core.upstream.session import ListedTools
from mcp_exec_broker.manager import BrokerManager
from mcp_exec_broker.settings import Settings
from mcp_exec_common.broker.grants import GrantSigner
from mcp_exec_common.kube.client import custom_resource_path
from mcp_exec_common.kube.credentials import KubeCredentials
from mcp_exec_common.sandbox_keys import SandboxKeys
from tests.support.constants import SANDBOX_KEY
from tests.support.grants import make_grant

Object = dict[str, Any]

ADDRESSES: Final = ("jane@example.com", "joe@example.com")
"""Personal data that the tool `find` returns, by its number."""
_EXECUTIONS: Final = custom_resource_path(EXECUTIONS, namespace="agents")
_SIGNER: Final = GrantSigner(keys=SandboxKeys(SANDBOX_KEY))
_SERVER: Final[Object] = {
    "metadata": {"namespace": "agents", "name": "box", "uid": "box", "generation": 1},
    "spec": {
        "url": "http://box.invalid/mcp",
        "policy": {"destructive": "Approve"},
        "scan": {"personalInResults": "Tokenize"},
    },
}


def _tool(name: str, kind: str, **annotations: bool) -> Object:
    schema = {"type": "object", "properties": {"value": {"type": kind}}, "required": ["value"]}
    return {"name": name, "inputSchema": schema, "outputSchema": {"type": "object"}, "annotations": annotations}


_TOOLS: Final = [_tool("find", "integer"), _tool("send", "string"), _tool("destroy", "string", destructiveHint=True)]


class FakeExecutions:
    """The executions at the API server, as far as the broker's watches read them."""

    credentials = KubeCredentials(server="https://api.invalid")

    def __init__(self) -> None:
        self._items: dict[str, Object] = {}
        self._applied: dict[str, int] = {}
        """Last version of each execution that a watch has applied."""
        self._version = 1
        self._changed = asyncio.Event()

    def put(self, uid: str) -> None:
        """Create the execution `exec-UID`."""
        self._items[f"exec-{uid}"] = {"metadata": {"name": f"exec-{uid}", "namespace": "agents", "uid": uid}}
        self._store(f"exec-{uid}", [])

    def decide(self, uid: str, decision: Object) -> None:
        """Add a decision to the execution's spec."""
        name = f"exec-{uid}"
        self._store(name, [*self._items[name]["spec"]["approvals"], decision])

    def is_applied(self, uid: str) -> bool:
        """Return whether a watch has applied the newest version of the execution."""
        return self._applied.get(f"exec-{uid}") == int(self._items[f"exec-{uid}"]["metadata"]["resourceVersion"])

    def _store(self, name: str, approvals: list[Object]) -> None:
        self._version += 1
        self._items[name]["metadata"]["resourceVersion"] = str(self._version)
        self._items[name]["spec"] = {"approvals": approvals}
        self._changed.set()

    # as KubeClient

    async def scan(self, path: str, take: Callable[[Object], None], *, selector: str = "", fields: str = "") -> str:
        """Hand over the executions that the field selector names."""
        version = str(self._version)
        item = self._find(path, fields)
        if item is not None:
            take(item)
            self._applied[item["metadata"]["name"]] = int(item["metadata"]["resourceVersion"])
        return version

    async def watch(
        self, path: str, *, resource_version: str, selector: str = "", fields: str = ""
    ) -> AsyncGenerator[Object, None]:
        """Yield the newest state of the execution that the field selector names, whenever it changes."""
        since = int(resource_version)
        while True:
            item = self._find(path, fields)
            if item is not None and int(item["metadata"]["resourceVersion"]) > since:
                since = int(item["metadata"]["resourceVersion"])
                yield {"type": "MODIFIED", "object": item}
                self._applied[item["metadata"]["name"]] = since
                continue
            self._changed.clear()
            await self._changed.wait()

    def _find(self, path: str, fields: str) -> Object | None:
        item = self._items.get(fields.removeprefix("metadata.name=")) if path == _EXECUTIONS else None
        return deepcopy(item)


class RecordingToolServer:
    """Session and pool of sessions in one: an MCP server that records the calls it receives."""

    is_modern = True
    has_ended = False
    secrets: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.received: list[tuple[str, Any]] = []
        """Tool and argument of each call."""
        self.holds = False
        """Whether calls are recorded, and never answered."""
        self.route = SimpleNamespace(spec=None)

    async def get_session(self, server: Any, user: str | None) -> "RecordingToolServer":
        """Return itself."""
        self.route.spec = server.spec
        return self

    async def list_tools(self) -> ListedTools:
        """Return the tools: `find` returns an address, `send` and `destroy` do something."""
        return ListedTools(tools=_TOOLS, ttl_seconds=None, is_public=True, size=1, omitted=[], omitted_count=0)

    async def call_tool(self, tool: str, arguments: Object, *, receiver: object) -> Object:
        """Record the call and answer it."""
        self.received.append((tool, arguments["value"]))
        if self.holds:
            await asyncio.Event().wait()
        structured = {"address": ADDRESSES[arguments["value"]]} if tool == "find" else {}
        return {"content": [], "structuredContent": structured}


class RestartableBroker:
    """The broker, which runs from `start` to `stop`, and what it has to do with."""

    def __init__(self, folder: Path, *, tool_calls: int) -> None:
        self.executions = FakeExecutions()
        self.server = RecordingToolServer()
        self.starts = 0
        self._folder = folder
        self._tool_calls = tool_calls
        self._stack = AsyncExitStack()

    @property
    def core(self) -> BrokerManager:
        """The parts of the running process."""
        return self._core

    async def start(self) -> None:
        """Start a process on the files that the one before left."""
        self.starts += 1
        keys = self._folder / "sandbox-key"
        keys.mkdir(exist_ok=True)
        (keys / "key").write_bytes(SANDBOX_KEY)
        settings = Settings(
            namespaces=("agents",),
            release_namespace="mcp-exec-system",
            sandbox_key_folder=keys,
            audit_file=self._folder / "audit.sqlite",
        )
        kube = cast(Any, self.executions)
        self._core = await self._stack.enter_async_context(BrokerManager.run(settings, kube=kube))
        self._core.pipeline.servers.observe(_SERVER, False)
        self._core.catalogs.lister.sessions = self._core.pipeline.dispatcher.sessions = cast(Any, self.server)
        self._calls = self._open_client(self._core.sandbox_app)
        self._control = self._open_client(self._core.control.build_app())

    async def stop(self) -> None:
        """End the process in order. The caller cancels its calls first."""
        await self._stack.aclose()

    def crash(self) -> None:
        """Keep the files as they are now, as SIGKILL leaves them, for the next start; `stop` must follow."""
        folder = self._folder.with_name(f"start-{self.starts}")
        shutil.copytree(self._folder, folder)
        self._folder = folder

    async def call(self, uid: str, tool: str, value: object) -> Object:
        """Call a tool for an execution; return the last line of the answer."""
        grant = make_grant(execution=uid, name=f"exec-{uid}", tool_calls=self._tool_calls, pod_address="127.0.0.1")
        body = {"id": "1", "tool": f"box.{tool}", "arguments": {"value": value}}
        headers = {"Authorization": f"Bearer {_SIGNER.sign(grant)}"}
        response = await self._calls.post("/v1/calls", json=body, headers=headers)
        assert response.status_code == 200, response.text
        return cast(Object, json.loads(response.text.splitlines()[-1]))

    async def close(self, uid: str) -> Object:
        """End an execution; return what the broker says of its calls."""
        headers = {"Authorization": f"Bearer {_SIGNER.sign_service_token('gateway')}"}
        response = await self._control.delete(f"/v1/executions/{uid}", headers=headers)
        assert response.status_code == 200, response.text
        return cast(Object, response.json())

    @staticmethod
    def _open_client(app: Any) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(app=app, client=("127.0.0.1", 1))
        return httpx.AsyncClient(transport=transport, base_url="http://broker.invalid", timeout=None)
