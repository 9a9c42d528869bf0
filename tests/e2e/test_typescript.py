"""TypeScript in real sandboxes, in each runtime: results, tools, sessions, workspaces, reuse, refusals, limits."""

import os
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from tests.e2e.providers import Provider
from tests.e2e.support import Cluster, Gateway, MakePool, pool_manifest, require_gvisor
from tests.e2e.test_records import export
from tests.e2e.toolservers import running, stdio, tool_server
from tests.support.hostile_code import LEAVE, LOOK
from tests.support.pace import paced
from tests.support.until import eventually

pytestmark = pytest.mark.timeout(900)
IMAGE = os.environ.get("SANDBOX_TYPESCRIPT_IMAGE", "localhost/mcp-exec-sandbox-typescript:dev")
LIMITS = {"limits": {"cpu": "1", "memory": "512Mi", "ephemeral-storage": "512Mi"}}
SHAPES = """
enum Level { Low = 1, High = 2 }
interface Row { name: string; level: Level }
const rows: Row[] = [{ name: "a", level: Level.Low }, { name: "b", level: Level.High }];
const later = async <T>(value: T): Promise<T> => value;
console.log(`${rows.length} rows`);
console.error("done");
const high = (await later(rows)).filter((row) => row.level === Level.High);
({ high, factor: context.factor, when: new Date(0) })
"""
CALLS = """
import { getExpenses, list_categories } from "servers/expenses";
import * as expenses from "servers/expenses";
import { callMcpTool, ToolError } from "client";

const named = await getExpenses({ user_id: "u-42" });
const placed = await expenses.get_expenses("u-42");
const called = await callMcpTool<unknown[]>("expenses.get_expenses", { user_id: "u-42" });
let refused = "";
try {
  await callMcpTool("expenses.no_such_tool", {});
} catch (error) {
  refused = error instanceof ToolError ? "ToolError" : String(error);
}
({
  same: named.length > 0 && named.length === placed.length && placed.length === called.length,
  categories: (await list_categories()).length > 0,
  refused,
})
"""
BEGIN = """
await Deno.mkdir("data/deep", { recursive: true });
Deno.writeTextFileSync("data/rows.json", JSON.stringify([{ id: 1, name: "é" }]));
Deno.writeFileSync("data/deep/bytes.bin", new Uint8Array([0, 255, 10]));
Deno.writeTextFileSync("data/old.txt", "old");
"""
GO_ON = """
import json, pathlib
path = pathlib.Path("data/rows.json")
rows = json.loads(path.read_text())
path.write_text(json.dumps([*rows, {"id": 2, "name": "ü"}], ensure_ascii=False))
pathlib.Path("data/old.txt").unlink()
[rows, list(pathlib.Path("data/deep/bytes.bin").read_bytes())]
"""
CHECK = """
import rows from "./data/rows.json" with { type: "json" };
const names = [...Deno.readDirSync("data")].map((entry) => entry.name).sort();
({ rows, names, bytes: [...Deno.readFileSync("data/deep/bytes.bin")] })
"""
HEAP = "const rows: number[][] = [];\nwhile (true) rows.push(new Array(1e5).fill(Math.random()));"
TYPED_ARRAYS = "const kept: Uint8Array[] = [];\nwhile (true) kept.push(new Uint8Array(2 ** 24).fill(1));"


@pytest.fixture(scope="module")
def scripts_pools(installed: Cluster, runtimes: dict[str, str | None]) -> Iterator[dict[str, str]]:
    """A warm pool for TypeScript in each runtime, by the name of the runtime."""
    names = {runtime: f"typescript-{runtime}" for runtime in runtimes}
    for runtime, name in names.items():
        language: dict[str, Any] = {"language": "typescript", "resources": LIMITS}
        installed.apply(pool_manifest(name=name, runtime=runtimes[runtime], image=IMAGE, warm=1, **language))
    for name in names.values():
        installed.wait_for("Ready", "SandboxPool", name, seconds=120)
    yield names
    for name in names.values():
        installed.delete("SandboxPool", name)


@pytest.fixture(params=["runc", "gvisor"])
def scripts(request: pytest.FixtureRequest, cluster: Cluster, provider: Provider, scripts_pools: dict[str, str]) -> str:
    """The pool for TypeScript of each runtime that the cluster has."""
    if request.param not in scripts_pools:
        require_gvisor(cluster, provider)
    return scripts_pools[request.param]


def run(gateway: Gateway, pool: str, code: str, **spec: Any) -> dict[str, Any]:
    return gateway.run(code, **{"language": "typescript", "poolRef": {"name": pool}, **spec})


def test_code_runs_with_types_output_and_a_result(gateway: Gateway, scripts: str) -> None:
    done = run(gateway, scripts, SHAPES, context={"factor": 3})
    assert done["phase"] == "Succeeded", str(done)
    assert (done["output"]["stdout"], done["output"]["stderr"]) == ("2 rows\n", "done\n")
    expected = {"high": [{"name": "b", "level": 2}], "factor": 3, "when": "1970-01-01T00:00:00.000Z"}
    assert done["output"]["result"] == expected


def test_an_error_has_the_line_of_the_code(gateway: Gateway, scripts: str) -> None:
    done = run(gateway, scripts, "interface A { n: number }\nconst a: A = { n: 1 };\nthrow new RangeError('too far');")
    assert (done["phase"], done["reason"]) == ("Failed", "UserError"), str(done)
    assert {"type": "RangeError", "message": "too far", "line": 3}.items() <= done["error"].items()


def test_code_calls_tools_in_every_form(installed: Cluster, gateway: Gateway, scripts: str) -> None:
    server = tool_server("expenses", stdio=stdio("python3", "-m", "mcp_exec_servers.expenses"))
    with running(installed, server):
        done = run(gateway, scripts, CALLS, tools=["expenses.*"], timeoutSeconds=60)
    assert done["phase"] == "Succeeded", str(done)
    assert done["output"]["result"] == {"same": True, "categories": True, "refused": "ToolError"}
    assert done["toolCalls"]["total"] >= 4


def test_a_session_keeps_what_code_declared(installed: Cluster, gateway: Gateway, scripts: str) -> None:
    def step(code: str) -> Any:
        done = run(gateway, scripts, code, session=f"steps-{scripts}")
        assert done["phase"] == "Succeeded", str(done)
        return done["output"]["result"], done["podUid"]

    try:
        first = step("const rows = [1, 2]; class Box { constructor(public n: number) {} }\nrows.length")
        second = step("const rows2 = [...rows, new Box(3).n]; rows2")
        third = step("const rows = 'declared again'; rows")
        assert [first[0], second[0], third[0]] == [2, [1, 2, 3], "declared again"]
        assert len({first[1], second[1], third[1]}) == 1
    finally:
        installed.delete("SandboxSession", *installed.names("SandboxSession"))


def test_a_workspace_serves_both_languages(gateway: Gateway, scripts: str) -> None:
    name = f"languages-{uuid4().hex[:8]}"
    other = scripts.removeprefix("typescript-")

    def step(pool: str, code: str, mode: str = "Write") -> dict[str, Any]:
        done = gateway.run(code, poolRef={"name": pool}, workspace={"name": name, "mode": mode})
        assert done["phase"] == "Succeeded", str(done)
        return done

    assert step(scripts, BEGIN)["workspace"]["version"] == 1
    changed = step(other, GO_ON)
    assert changed["output"]["result"] == [[{"id": 1, "name": "é"}], [0, 255, 10]]
    assert (changed["workspace"]["version"], changed["workspace"]["changedFiles"]) == (2, 2)
    rows = [{"id": 1, "name": "é"}, {"id": 2, "name": "ü"}]
    expected = {"rows": rows, "names": ["deep", "rows.json"], "bytes": [0, 255, 10]}
    assert step(scripts, CHECK, mode="Read")["output"]["result"] == expected


@pytest.mark.timeout(300)
def test_a_reused_pod_shows_nothing_of_the_run_before(
    installed: Cluster, gateway: Gateway, scripts: str, runtimes: dict[str, str | None], make_pool: MakePool
) -> None:
    runtime = scripts.removeprefix("typescript-")
    pool = f"reused-{runtime}"
    reuse = {"scope": "Owner", "maxUses": 4}
    spec: dict[str, Any] = {"image": IMAGE, "language": "typescript", "resources": LIMITS, "reuse": reuse}
    make_pool(pool, runtimeClassName=runtimes[runtime], **spec)
    installed.wait_for("Ready", "SandboxPool", pool, seconds=120)
    look, leave = LOOK["typescript"], LEAVE["typescript"]
    first, left, second = (
        run(gateway, pool, code, user="leaver", context={"port": 8080}) for code in (look, leave, look)
    )
    assert [each["phase"] for each in (first, left, second)] == ["Succeeded"] * 3, str((first, left, second))
    assert len({each["podUid"] for each in (first, left, second)}) == 1
    assert second["output"]["result"] == first["output"]["result"]


def test_the_record_of_a_run_has_its_language(installed: Cluster, scripts: str, url: str, api_key: str) -> None:
    name = f"recorded-{uuid4().hex[:8]}"
    status = installed.execute(name=name, code="1", poolRef={"name": scripts})
    assert status["phase"] == "Succeeded", status

    def find() -> list[object]:
        return [row["language"] for row in export(url, api_key, "executions") if row["name"] == name]

    assert eventually(find, what="the execution has a record") == ["typescript"]


def test_a_pool_of_another_language_is_refused_with_the_pools_that_there_are(
    installed: Cluster, gateway: Gateway, scripts_pools: dict[str, str]
) -> None:
    pool = next(iter(scripts_pools.values()))
    status = installed.execute(name="wrong-language", code="1", language="typescript", poolRef={"name": "default"})
    assert (status["phase"], status["reason"]) == ("Failed", "LanguageNotOffered"), str(status)
    assert f"{pool} (typescript)" in status["error"]["message"]
    body = {"code": "1", "language": "python", "poolRef": {"name": pool}}
    response = gateway.client.post("/v1/executions", json=body)
    assert (response.status_code, response.json()["type"]) == (422, "urn:mcp-exec:problem:language-not-offered")


def test_the_gateway_chooses_a_pool_that_runs_the_language(gateway: Gateway, scripts_pools: dict[str, str]) -> None:
    done = gateway.run("40 + 2", language="typescript")
    assert (done["phase"], done["output"]["result"]) == ("Succeeded", 42), str(done)
    assert done["pool"] in scripts_pools.values()


@pytest.mark.parametrize("code", [HEAP, TYPED_ARRAYS], ids=["heap", "typed arrays"])
def test_too_much_memory_ends_the_run_and_says_so(gateway: Gateway, scripts: str, code: str) -> None:
    done = run(gateway, scripts, code, wait=paced(90), timeoutSeconds=60)
    assert (done["phase"], done["reason"]) == ("Failed", "OutOfMemory"), str(done)


def test_an_endless_loop_is_ended_at_its_time_limit(gateway: Gateway, scripts: str) -> None:
    done = run(gateway, scripts, "console.log('begun');\nwhile (true);", timeoutSeconds=2)
    assert (done["phase"], done["output"]["stdout"]) == ("TimedOut", "begun\n"), str(done)
