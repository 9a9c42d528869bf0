"""A gateway whose executions run in real sandboxes; API server, broker and MCP servers are fakes."""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.component.gateway.conftest import CEX, KEY, SBP, SECRETS, Gateway, key_entry, keys_secret, pool, serving
from tests.component.sandbox.conftest import ReusedSandbox, Run, SandboxProcess, Spares, broker, compiled
from tests.component.sandbox.test_listings import ANSWERS, SERVERS, read_catalog
from tests.support.api_server import FakeApiServer
from tests.support.broker import FakeBroker, running_broker
from tests.support.broker_calls import Call, FakeBrokerCalls
from tests.support.broker_files import FakeWorkspace
from tests.support.environment import no_profile
from tests.support.files_server import FakeFiles
from tests.support.until import until

from mcp_exec_api.code_execution import CodeExecutionSpec
from mcp_exec_api.constants import SKILLS, Language
from mcp_exec_api.files import Owner
from mcp_exec_api.skill import module_name, read_language
from mcp_exec_common.kube.client import custom_resource_path
from mcp_exec_common.usage import MeasuredUsage
from mcp_exec_tools.wrappers import build_files, format_catalog

__all__ = ["broker", "compiled", "no_profile"]

Object = dict[str, Any]
OWNER = Owner(namespace="agents", caller="team-a").digest
SKL = custom_resource_path(SKILLS, namespace="agents")
POOL: Object = {"python": "3.13.5", "libraries": [{"name": "pandas", "version": "3.1.1", "modules": ["pandas"]}]}
RESOURCES = {"limits": {"cpu": "1", "memory": "512Mi"}}


class Stage:
    """Runs the code of each new execution in a sandbox, and writes its status, as the operator does."""

    def __init__(
        self, gateway: Gateway, spares: Spares, calls: FakeBrokerCalls, files: FakeFiles, service: FakeBroker
    ) -> None:
        self._gateway = gateway
        self._starts: dict[Language, Callable[[], SandboxProcess]] = {
            "python": spares.take,
            "typescript": lambda: SandboxProcess(language="typescript"),
        }
        self._calls = calls
        self._files = files
        self._service = service
        self._sandboxes: dict[tuple[Language, str], ReusedSandbox | SandboxProcess] = {}
        """By language and session. That of executions without one has no name, and is cleaned after each."""
        catalogs = [read_catalog(server) for server in SERVERS]
        self._wrappers = {
            language: {**build_files(catalogs, language=language), "catalog.json": format_catalog(catalogs)}
            for language in self._starts
        }
        service.catalogs["agents"] = {
            "hash": "h",
            "servers": [
                {
                    "server": each.server,
                    "available": True,
                    "description": "",
                    "tools": json.loads(
                        (Path(__file__).parents[3] / "servers/catalogs" / f"{each.server}.json").read_text()
                    )["tools"],
                }
                for each in catalogs
            ],
        }
        for name, value in ANSWERS.items():
            calls.tools[name] = partial(Call.value, value=value)
        for name in ("github__search_repositories", "github__create_issue"):
            calls.tools[f"mcp__{name}"] = calls.tools[name.replace("__", ".")]

    def handle_creation(self, collection: str, item: Object) -> None:
        """Run a new execution to its end."""
        if collection != CEX:
            return
        spec = CodeExecutionSpec.model_validate(item["spec"])
        language = spec.language or "python"
        sandbox = self._take(language, spec.session or "")
        workspace = self._open_workspace(spec)
        fields: Object = {"files": self._files.job("Write" if workspace else None)}
        if spec.session:
            fields |= {"owner": "0" * 32, "session": True}
        if spec.tools:
            fields["tools"] = {**self._calls.job, "allow": spec.tools}
        run = sandbox.run(  # type: ignore[misc] # of both kinds of sandboxes
            spec.build_source(language),
            id=item["metadata"]["uid"],
            context=spec.context or {},
            timeoutSeconds=spec.timeout_seconds,
            skills=self._list_skills(language),
            **fields,
        )
        if workspace is not None:
            workspace.versions.append({path: data for path, (data, _) in self._files.versions[-1].items()})
        self._finish(item, run)

    def close(self) -> None:
        for sandbox in self._sandboxes.values():
            sandbox.close()

    def _take(self, language: Language, session: str) -> ReusedSandbox | SandboxProcess:
        place = language, session
        if place not in self._sandboxes:
            start = self._starts[language]
            self._sandboxes[place] = start() if session else ReusedSandbox(start)
            wrappers = {"hash": "h", "files": self._wrappers[language]}
            self._sandboxes[place].client.put("/v1/wrappers", json=wrappers).raise_for_status()
        return self._sandboxes[place]

    def _open_workspace(self, spec: CodeExecutionSpec) -> FakeWorkspace | None:
        if spec.workspace is None:
            return None
        found = self._service.files.workspaces.setdefault((OWNER, spec.workspace.name), FakeWorkspace())
        self._files.add_version({path: (data, 0o644) for path, data in found.files.items()})
        return found

    def _list_skills(self, language: Language) -> Object:
        specs = [item["spec"] for item in self._gateway.api.collections.get(SKL, {}).values()]
        specs = [spec for spec in specs if read_language(spec) == language]
        sources: Object = {}
        modules: Object = {}
        for spec in specs:
            source = f"{spec['name']}-v{spec['version']}"
            sources[source] = {"code": spec["code"], "tools": spec.get("tools", [])}
            modules |= {module_name(spec["name"], None): source, module_name(spec["name"], spec["version"]): source}
        catalog = [
            {"name": module_name(spec["name"], None), "description": spec["description"], "inputSchema": {}}
            for spec in specs
        ]
        return {"sources": sources, "modules": modules, "catalog": catalog}

    def _finish(self, item: Object, run: Run) -> None:
        artifacts = [event for event in run.events if event["type"] == "artifact"]
        contents = {each["sha256"][:16]: each["data"] for each in self._files.artifacts}
        uid, names = item["metadata"]["uid"], ("id", "name", "mediaType", "bytes", "sha256", "title", "preview")
        for each in artifacts:
            self._service.files.artifacts[OWNER, uid, each["id"]] = contents[each["id"]]
        output: Object = {"stdout": run.stdout, "stderr": run.stderr, "stdoutBytes": len(run.stdout.encode())}
        if run.has_result:
            output["result"] = run.result
        called = [event["tool"] for event in run.events if event["type"] == "tool_call"]
        failure: Object = {} if run.error is None else {"error": run.error}
        self._gateway.finish(
            item["metadata"]["name"],
            run.phase,
            reason=run.reason or "",
            output={**output, "stderrBytes": 0, "truncated": False},
            **failure,
            durations={"run": run.end.get("runMs", 1.0)},
            artifacts=[{name: each[name] for name in names if each.get(name) is not None} for each in artifacts],
            toolCalls={"total": len(called), "byTool": {name: called.count(name) for name in called}},
            usage={"codeBytes": 1, "peakMemoryBytes": 2**24, "tokens": {"code": 9, "returned": 5, "method": "m"}},
        )


@pytest.fixture(scope="module")
def spares() -> Iterator[Spares]:
    """Sandboxes of this module only: they end before others look for processes that are left."""
    made = Spares()
    yield made
    made.close()


@pytest.fixture
def files() -> Iterator[FakeFiles]:
    made = FakeFiles()
    yield made
    made.close()


@pytest.fixture
async def gateway(spares: Spares, broker: FakeBrokerCalls, files: FakeFiles) -> AsyncIterator[Gateway]:
    """A gateway with a pool for each language, and a key that may approve."""
    async with FakeApiServer().running() as api:
        api.put(SBP, {**pool("default"), "status": POOL})
        api.merge(SBP, "default", {"spec": {"resources": RESOURCES}})
        api.put(SBP, pool("scripts"))
        api.merge(SBP, "scripts", {"spec": {"language": "typescript"}})
        api.put(SECRETS, keys_secret(**{"team-a": {**key_entry(KEY), "approver": True}}))
        async with (
            running_broker(api) as service,
            serving(api, broker_service="mcp-exec-broker", skill_self_approval=True) as made,
        ):
            service.rows, service.usage = {}, MeasuredUsage().to_api()
            await until(lambda: made.dependencies.keys.find(KEY) is not None)
            stage = Stage(made, spares, broker, files, service)
            api.on_create = stage.handle_creation
            try:
                yield made
            finally:
                stage.close()
