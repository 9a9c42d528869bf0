"""Generated wrappers in TypeScript, checked and run by Deno."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from tests.support.deno import run_deno
from tests.unit.tools.schemas.test_hostile_schemas import SCHEMAS
from tests.unit.tools.wrappers.conftest import ROOT, real_catalogs, write
from tests.unit.tools.wrappers.hostile import hostile_catalog

from mcp_exec_tools.catalog import Catalog, assign_modules
from mcp_exec_tools.wrappers import build_files, format_index
from mcp_exec_tools.wrappers.signature import format_signature

CLIENT_TYPES = """\
export interface Parameter { readonly required?: true }
export interface WrapperOptions {
  readonly spellings?: Readonly<Record<string, string>>;
  readonly fixed?: Readonly<Record<string, unknown>>;
  readonly resultFormat?: string;
  readonly isOpen?: boolean;
}
export class ToolError extends Error {}
export function callWrapped<T = any>(
  tool: string,
  values: readonly unknown[],
  parameters: Readonly<Record<string, Parameter>>,
  options?: WrapperOptions,
): Promise<T>;
export function bindArguments(
  tool: string,
  values: readonly unknown[],
  parameters: Readonly<Record<string, Parameter>>,
  options?: WrapperOptions,
): Record<string, any>;
"""
CLIENT = """\
// @ts-self-types="./client.d.ts"
export class ToolError extends Error {}
export function bindArguments(tool, values, parameters, { spellings = {} } = {}) {
  const isNamed = values.length === 1 && typeof values[0] === "object" && !Array.isArray(values[0]);
  const names = Object.keys(parameters);
  const given = isNamed ? Object.entries(values[0]) : values.map((value, at) => [names[at], value]);
  return Object.fromEntries(given.map(([name, value]) => [name in parameters ? name : spellings[name] ?? name, value]));
}
export async function callWrapped(tool, values, parameters, options = {}) {
  const bound = { ...bindArguments(tool, values, parameters, options), ...options.fixed };
  return globalThis.answer?.(tool, bound) ?? { tool, arguments: bound, parameters: Object.keys(parameters) };
}
"""
CATALOGS = real_catalogs()


def prepare(folder: Path, catalogs: Sequence[Catalog]) -> None:
    """Write the wrappers, a client that returns each call, and the package of all servers."""
    modules = sorted(assign_modules(catalogs).values())
    files = {**build_files(catalogs, language="typescript"), **format_index(modules)}
    names = {"client": "./client.js", "servers": "./servers/mod.js"}
    names |= {f"servers/{module}": f"./servers/{module}/mod.js" for module in modules}
    options = {"imports": names, "compilerOptions": {"strict": True}}
    client = {"client.js": CLIENT, "client.d.ts": CLIENT_TYPES, "deno.json": json.dumps(options)}
    write(folder, {f"servers/{name}": text for name, text in files.items()} | client)


def check(folder: Path, source: str) -> str:
    """Return what Deno's type checker finds in a program: nothing if it is right."""
    return check_all(folder, {"program.ts": source})


def check_all(folder: Path, sources: Mapping[str, str]) -> str:
    """Return what Deno's type checker finds in programs, by their files' names."""
    write(folder, sources)
    checked = run_deno(["check", "--no-remote", "--no-npm", *sources], folder=folder, seconds=110)
    assert (checked.returncode == 0) == ("ERROR" not in checked.stderr), checked.stderr[-3000:]
    return checked.stderr if checked.returncode else ""


def run(folder: Path, source: str) -> Any:
    """Return the JSON that a program prints."""
    write(folder, {"program.ts": source})
    ended = run_deno(["run", "--no-check", "--no-remote", "--no-npm", "program.ts"], folder=folder)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return json.loads(ended.stdout)


def test_every_wrapper_passes_the_type_checker(tmp_path: Path) -> None:
    prepare(tmp_path, [*CATALOGS, hostile_catalog("evil")])
    assert check(tmp_path, 'import * as servers from "servers";\nconsole.log(servers);\n') == ""


def test_wrappers_of_any_schemas_pass_the_type_checker(tmp_path: Path) -> None:
    schemas: list[Any] = []

    @settings(max_examples=200, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(SCHEMAS)
    def collect(schema: Any) -> None:
        schemas.append(schema)

    collect()
    tools = [{"name": f"t{at}", "inputSchema": each, "outputSchema": each} for at, each in enumerate(schemas)]
    prepare(tmp_path, [Catalog.from_tools("s", tools)])
    assert check(tmp_path, 'import * as servers from "servers";\nconsole.log(servers);\n') == ""


FORMS = """\
import { createIssue, create_issue, type CreateIssueInput } from "servers/github";
import * as hub from "servers/github";
import { context7, github, supabase } from "servers";

const input: CreateIssueInput = { owner: "o", repo: "r", title: "t", labels: ["bug"] };
const calls = [
  createIssue(input),
  create_issue("o", "r", "t", "b"),
  hub.createIssue({ owner: "o", repo: "r", title: "t" }),
  github.createIssue("o", "r", "t", undefined, ["me"]),
  github.list_issues({ owner: "o", repo: "r", perPage: 5 } as any),
  supabase.listTables("p", ["public"]),
];
"""


def test_calls_in_all_forms_and_both_naming_styles_reach_their_tool(tmp_path: Path) -> None:
    prepare(tmp_path, CATALOGS)
    source = f"{FORMS}console.log(JSON.stringify(await Promise.all(calls)), context7 && '');\n"
    assert check(tmp_path, source) == ""
    answers = run(tmp_path, source)
    assert [answer["tool"] for answer in answers] == [
        *["github.create_issue"] * 4,
        "github.list_issues",
        "supabase.list_tables",
    ]
    assert answers[1]["arguments"] == {"owner": "o", "repo": "r", "title": "t", "body": "b"}
    assert answers[4]["arguments"] == {"owner": "o", "repo": "r", "per_page": 5}


def test_wrong_calls_are_found_by_the_type_checker(tmp_path: Path) -> None:
    prepare(tmp_path, CATALOGS)
    found = check(
        tmp_path,
        'import { createIssue, listIssues } from "servers/github";\n'
        'import { executeSQL } from "servers/supabase";\n'
        'await createIssue({ owner: "o", repo: "r" });\n'
        'await listIssues({ owner: "o", repo: "r", state: "ajar" });\n'
        'await createIssue({ owner: "o", repo: "r", title: 5 });\n'
        'await createIssue("o", "r", 5);\n'
        'await createIssue("o", "r", "t", "b", [], 1, [], "more");\n'
        'await createIssue({ owner: "o", repo: "r", title: "t", colour: "red" });\n'
        '(await executeSQL("p", "SELECT 1")).map((row) => row.id).length;\n',
    )
    assert set(re.findall(r"at file://\S*/program\.ts:(\d+)", found)) == {"3", "4", "5", "6", "7", "8"}, found


def test_every_function_of_a_hostile_catalog_is_imported_and_calls_its_own_tool(tmp_path: Path) -> None:
    catalog = hostile_catalog("evil")
    prepare(tmp_path, [catalog])
    called = run(
        tmp_path,
        'const evil = await import("servers/evil");\n'
        "const called = Object.values(evil).map((each) => each({ anything: 1 }));\n"
        "console.log(JSON.stringify((await Promise.all(called)).map((answer) => answer.tool)));\n",
    )
    assert set(called) == {f"evil.{tool.name}" for tool in catalog.tools}


def test_a_tool_named_as_a_method_of_promises_does_not_stop_the_import(tmp_path: Path) -> None:
    prepare(tmp_path, [Catalog.from_tools("s", [{"name": name} for name in ("then", "default", "delete")])])
    program = (
        'import { delete as remove } from "servers/s";\n'
        'const s = await import("servers/s");\n'
        "const called = [s.then_(), s.default(), s.default_(), s.delete(), remove()];\n"
        "console.log(JSON.stringify((await Promise.all(called)).map((answer) => answer.tool)));\n"
    )
    assert check(tmp_path, program) == ""
    assert run(tmp_path, program) == ["s.then", "s.default", "s.default", "s.delete", "s.delete"]


COMPOSED = """\
import { compareLibraries, getDocsByName, getLibraryDocs, get_library_docs } from "servers/context7";

(globalThis as any).answer = (tool: string, given: any) => {
  if (tool === "context7.query-docs") return `docs of ${given.libraryId} on ${given.query}`;
  if (given.libraryName === "nothing") return "No libraries found";
  return `- Title: X\\n- Context7-compatible library ID: /org/${given.libraryName}\\n- Description: y`;
};
const missing = await getDocsByName("nothing").catch((error: Error) => `${error.constructor.name} ${error.message}`);
console.log(JSON.stringify([
  await getDocsByName("next.js", "routing"),
  await getDocsByName({ name: "next.js" }),
  await compareLibraries(["a", "b"], "routing"),
  await getLibraryDocs({ libraryId: "/a/b", query: "hooks" } as any),
  await get_library_docs("/a/b"),
  missing,
]));
"""


def test_composed_functions_do_what_they_do_in_python(tmp_path: Path) -> None:
    prepare(tmp_path, [catalog for catalog in CATALOGS if catalog.server == "context7"])
    assert check(tmp_path, COMPOSED) == ""
    assert run(tmp_path, COMPOSED) == [
        "docs of /org/next.js on routing",
        "docs of /org/next.js on getting started",
        {"a": "docs of /org/a on routing", "b": "docs of /org/b on routing"},
        "docs of /a/b on hooks",
        "docs of /a/b on getting started",
        'ToolError there is no library "nothing"',
    ]


def test_signatures_are_typescript_whatever_a_schema_says(tmp_path: Path) -> None:
    lines = [
        f"export namespace n{number} {{ export async function "
        f"{format_signature('f', tool.input_schema, tool.returned_schema, language='typescript')} {{ throw 0; }} }}"
        for catalog in (*CATALOGS, hostile_catalog())
        for number, tool in enumerate(catalog.tools, id(catalog))
    ]
    write(tmp_path, {"deno.json": json.dumps({"compilerOptions": {"strict": False}})})
    # what is said of hostile defaults may be wrong as a type, but each line is one function
    found = check(tmp_path, "\n".join(lines))
    assert not re.findall(r"^TS1\d{3} .*$", found, re.MULTILINE), found


def test_the_code_of_the_token_benchmark_passes_the_type_checker(tmp_path: Path) -> None:
    prepare(tmp_path, CATALOGS)
    options = json.loads((tmp_path / "deno.json").read_text())
    # models write no types of parameters; the sandbox strips types and checks none
    options["compilerOptions"]["noImplicitAny"] = False
    write(tmp_path, {"deno.json": json.dumps(options)})
    tasks = json.loads((ROOT / "bench" / "data" / "typescript.json").read_text())
    blocks = {f"{task}-{at}.ts": code for task, codes in tasks.items() for at, code in enumerate(codes)}
    assert check_all(tmp_path, {name.replace(" ", "-"): code for name, code in blocks.items()}) == ""
