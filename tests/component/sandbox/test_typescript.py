"""TypeScript code: what it may look like, what its result is, and what its errors say."""

import json

import pytest
from tests.component.sandbox.conftest import ReusedSandbox

RESULTS = {
    "the last expression": ("const n: number = 4;\nn + 1", 5),
    "no semicolons": ("const a = 1\nconst b = 2\n;[a, b].map((n) => n * 2)", [2, 4]),
    "an object": ("({ a: 1 })", {"a": 1}),
    "a sequence": ("1, 2", 2),
    "a template": ("const name = `x${1 + 1}`;\n`${name}: ${`inner ${name}`}`", "x2: inner x2"),
    "a text that looks like a directive": ("'use strict'", "use strict"),
    "top-level await": ("const value = await Promise.resolve(3);\nvalue", 3),
    "a promise as the last value": ("async function main() { return 6 }\nmain()", 6),
    "for await": ("let sum = 0;\nfor await (const n of [1, Promise.resolve(2)]) sum += n;\nsum", 3),
    "for await over a generator that is left": (
        "async function* count() { try { for (let n = 0; ; n++) yield n } finally { console.log('closed') } }\n"
        "let last = 0;\nfor await (const n of count()) { last = n; if (n === 3) break }\nlast",
        3,
    ),
    "an await in each place": (
        "const f = async (n: number) => n;\nconst x = (await f(1)) + await (f(2));\n"
        "if (await f(0)) { x } else { for (const n of await f([3] as any) as any) await f(n) }\n"
        "`${await f(x)} ${[await f(4), ...(await Promise.all([f(5)]))]}`",
        "3 4,5",
    ),
    "a top-level return": ("return 5;\nconsole.log('never')", 5),
    "a return of a promise": ("return Promise.resolve([1])", [1]),
    "a return in a block": ("for (const n of [1, 2]) {\n  if (n > 1) { return n * 10 }\n}", 20),
    "returns of functions only": (
        "function f(n: number) { if (n) { return 1 } return 2 }\nconst g = () => { return f(0) };\n"
        "class C { get v() { return g() } }\nnew C().v",
        2,
    ),
    "a return in a try with a catch": ("try { return 1 } catch (error) { return 'caught' }", 1),
    "a return in a try without a name": ("try { return 1 } catch { return 'caught' }", 1),
    "a return in a try with a pattern": ("try { return 1 } catch ({ message }) { return message }", 1),
    "a pattern that catches": ("try { throw new Error('no') } catch ({ message }) { return message }", "no"),
    "a return in a finally": ("try { 1 } finally { return 2 }", 2),
    "a variable result": ("const result = { rows: 2 };\nconsole.log('x')", {"rows": 2}),
    "an enum": ("enum Color { Red = 'r', Blue = 'b' }\nColor.Blue", "b"),
    "a namespace": ("namespace N { export const x = 3 }\nN.x", 3),
    "parameter properties": ("class P { constructor(public x: number) {} }\nnew P(7).x", 7),
    "generics, casts and satisfies": (
        "function id<T extends object>(v: T): T { return v }\ninterface A { n?: number }\n"
        "type B = A & { m: string };\nconst v = id({ m: 'x' } as B)!;\n(v satisfies A).n ?? v.m",
        "x",
    ),
    "a decorated export": ("export const a = 1;\nexport default function f() { return a }\nf()", 1),
    "functions that are used before": ("const v = later();\nfunction later() { return 'hoisted' }\nv", "hoisted"),
    "imports that come late": ("const v = path.join('a', 'b');\nimport path from 'node:path';\nv", "a/b"),
    "modules of Node with and without the prefix": (
        "import { EOL } from 'os';\nimport * as url from 'node:url';\n[EOL, typeof url.parse]",
        ["\n", "function"],
    ),
    "a dynamic import": ("const { basename } = await import('node:path');\nbasename('/a/b')", "b"),
    "an import of a type only": (
        "import type { Nothing } from 'nowhere';\nimport { type Stats } from 'node:fs';\nlet x: Nothing | Stats;\n1",
        1,
    ),
    "comments that look like code": ("// return 1\n/* import x from 'y' */ const s = '// return';\ns", "// return"),
    "a regular expression": ("'a/b'.split(/\\//).length", 2),
    "a required module": ("const fs = require('fs');\nfs.existsSync('.')", True),
    "nothing": ("const x = 1", None),
    "a call without a value": ("console.log('x')", None),
}


@pytest.mark.parametrize("name", RESULTS)
def test_every_shape_of_code_has_its_result(typescript: ReusedSandbox, name: str) -> None:
    code, expected = RESULTS[name]
    run = typescript.run(code)
    assert (run.error, run.result, run.has_result) == (None, expected, expected is not None)


ERRORS = {
    "a thrown error": ("const a = 1;\n\nthrow new RangeError('no')", "RangeError", "no", 3, "agent.ts:3:7"),
    "in a function": ("function f() {\n  throw new Error('x')\n}\nf()", "Error", "x", 2, "f (agent.ts:2:9)"),
    "in a function that moved": (
        "const before = 1;\nawait f();\nasync function f() {\n  null!.x;\n}",
        "TypeError",
        "Cannot read properties of null (reading 'x')",
        4,
        "f (agent.ts:4:9)",
    ),
    "after an import": ("import path from 'node:path';\npath.join(1 as any)", "TypeError", "", 2, "agent.ts:2:6"),
    "after an enum": ("enum A { X }\n\n  throw new Error(String(A.X))", "Error", "0", 3, "agent.ts:3:9"),
    "after await": ("await null;\nawait Promise.reject(new Error('late'))", "Error", "late", 2, "agent.ts:2:22"),
    "on the line of a return": (
        "if (1) return missing;",
        "ReferenceError",
        "missing is not defined",
        1,
        "agent.ts:1:15",
    ),
    "a text": ("\nthrow 'text'", "Error", '"text" was thrown, which is no Error', None, ""),
    "a class of its own": ("class Own extends Error {}\nthrow new Own('mine')", "Own", "mine", 2, "agent.ts:2:7"),
    "no TypeScript": ("const a = 1;\nconst b: = 2;", "SyntaxError", "Unexpected token", 2, "agent.ts:2:10"),
    "an open template": ("let x = `abc ${1", "SyntaxError", "Unexpected", 1, "agent.ts:1:17"),
    "a name declared twice": ("const a = 1;\nlet a = 2;", "SyntaxError", "'a' has already been declared", 2, ":2:5"),
    "a callback": ("setTimeout(() => {\n  throw new Error('cb')\n}, 5);\n1", "Error", "cb", 2, "agent.ts:2:9"),
    "a rejection that nobody handles": (
        "Promise.reject(new Error('nobody'));\nawait 0;\n5",
        "Error",
        "nobody",
        1,
        "agent.ts:1:16",
    ),
    "a missing export": (
        "import { joinn } from 'node:path';\njoinn()",
        "SyntaxError",
        'the module "node:path" has no export joinn: did you mean join?',
        1,
        "",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_has_the_place_in_the_code_as_it_was_written(typescript: ReusedSandbox, name: str) -> None:
    code, kind, message, line, frame = ERRORS[name]
    run = typescript.run(code)
    assert (run.phase, run.reason) == ("Failed", "UserError")
    assert (run.error["type"], run.error["line"]) == (kind, line), run.error
    assert message in run.error["message"]
    assert frame in run.error["traceback"]
    assert "mcp" not in run.error["traceback"].lower(), "no frame of the runner"
    assert "file:" not in run.error["traceback"]


def test_the_cause_of_an_error_is_named(typescript: ReusedSandbox) -> None:
    code = "try {\n  JSON.parse('{')\n} catch (error) {\n  throw new Error('outer', { cause: error })\n}"
    run = typescript.run(code)
    assert (run.error["message"], run.error["line"]) == ("outer", 4)
    assert "Caused by SyntaxError" in run.error["traceback"]


@pytest.mark.parametrize("specifier", ["npm:lodash", "jsr:@std/path", "https://deno.land/x.ts", "lodash", "@scope/x"])
def test_a_missing_library_names_what_there_is(typescript: ReusedSandbox, specifier: str) -> None:
    run = typescript.run(f"import x from {json.dumps(specifier)};\nx()")
    assert run.error["type"] == "ModuleNotFoundError"
    for part in (specifier, "Deno 2.", '"node:fs"', '"client"'):
        assert part in run.error["message"]


FENCES = {
    "```ts\nconst a: number = 1;\na\n```": (1, "The Markdown fence was removed."),
    "Here it is:\n\n```typescript\nlet a = 2;\n```\nand\n~~~js\na + 1\n~~~\n": (
        3,
        "The Markdown fences of 2 blocks were removed, and the text outside did not run (lines 1, 6).",
    ),
    "```\n4\n```\n```json\n{}\n```": (
        4,
        "The Markdown fence was removed, and the text outside did not run (line 5).",
    ),
    "const text = `\n\\`\\`\\`\n`;\ntext.length": (5, ""),
    "const text = '```';\ntext": ("```", ""),
}


@pytest.mark.parametrize("code", FENCES)
def test_code_in_markdown_runs_with_a_note(typescript: ReusedSandbox, code: str) -> None:
    result, note = FENCES[code]
    run = typescript.run(code)
    assert [each["message"] for each in run.end.get("notes", [])] == ([note] if note else [])
    if result is not None:
        assert (run.error, run.result) == (None, result)


def test_lines_of_code_in_markdown_keep_their_numbers(typescript: ReusedSandbox) -> None:
    assert typescript.run("The code:\n```ts\n\nthrow new Error('x')\n```").error["line"] == 4
    refused = typescript.run("```python\nprint(1)\n```")
    assert "names python, and this sandbox runs TypeScript" in refused.error["message"]


def test_output_comes_in_its_order(typescript: ReusedSandbox) -> None:
    code = (
        "console.log('one', { a: [1n, new Map([[1, 2]])] });\nprogress(1, 2, 'half');\nconsole.error('two');\n"
        "process.stdout.write('three\\n');\nDeno.stdout.writeSync(new TextEncoder().encode('four\\n'));\n"
        "console.table([{ a: 1 }]);\nconsole.log('%s is %d', 'x', 5)"
    )
    run = typescript.run(code)
    order = [event["type"] for event in run.events if event["type"] in ("stdout", "stderr", "progress")]
    assert order[:2] == ["stdout", "progress"], order
    assert run.stdout.startswith("one { a: [ 1n, Map(1) { 1 => 2 } ] }\nthree\nfour\n")
    assert run.stdout.endswith("x is 5\n")
    assert run.stderr == "two\n"


EXITS = {"process.exit(3)": 3, "Deno.exit(4)": 4, "process.exitCode = 5; process.exit()": 5, "process.exit(0)": 0}


@pytest.mark.parametrize("code", EXITS)
def test_an_exit_has_its_code(typescript: ReusedSandbox, code: str) -> None:
    run = typescript.run(f"console.log('before');\n{code};\nconsole.log('after')")
    failed = ("Failed", "ExitCode") if EXITS[code] else ("Succeeded", "")
    assert (run.phase, run.reason, run.end["exitCode"], run.stdout) == (*failed, EXITS[code], "before\n")


def test_timers_that_are_left_run_to_their_end(typescript: ReusedSandbox) -> None:
    run = typescript.run("setTimeout(() => console.log('later'), 50);\n7")
    assert (run.phase, run.result, run.stdout) == ("Succeeded", 7, "later\n")


def test_a_timer_without_end_runs_out_of_time_with_the_result(typescript: ReusedSandbox) -> None:
    run = typescript.run("setInterval(() => {}, 20);\n7", timeoutSeconds=0.5)
    assert (run.phase, run.reason, run.result) == ("TimedOut", "Timeout", 7)
    assert "it ended, but a timer was still running" in run.error["message"]


@pytest.mark.parametrize(
    "code", ["while (true) {}", "await new Promise(() => {})", "await new Promise((go) => setTimeout(go, 1e6))"]
)
def test_code_is_out_of_time_whether_it_computes_or_waits(typescript: ReusedSandbox, code: str) -> None:
    run = typescript.run(f"console.log('started');\n{code}", timeoutSeconds=0.4)
    assert (run.phase, run.reason, run.stdout) == ("TimedOut", "Timeout", "started\n")
    assert ("so it was killed" in run.error["message"]) == ("while" in code)


def test_files_that_are_left_open_are_written(typescript: ReusedSandbox) -> None:
    code = (
        "import fs from 'node:fs';\nconst stream = fs.createWriteStream('a.txt');\nstream.write('x'.repeat(100_000));\n"
        "const file = Deno.openSync('b.txt', { write: true, create: true });\nfile.writeSync(new Uint8Array(3));\n1"
    )
    run = typescript.run(code)
    assert (run.error, run.result) == (None, 1)
    assert [(typescript.workspace / name).stat().st_size for name in ("a.txt", "b.txt")] == [100_000, 3]


def test_context_variables_are_global_unless_they_would_hide_something(typescript: ReusedSandbox) -> None:
    context = {"rows": [1, 2], "fetch": "mine", "not a name": 3, "class": 4, "n": 10**15, "name": "x"}
    code = (
        "const twice = rows.map((row) => row * 2);\n"
        "[twice, typeof fetch, context.fetch, context['not a name'], context.class, n, name]"
    )
    assert typescript.run(code, context=context).result == [[2, 4], "function", "mine", 3, 4, 10**15, "x"]


def test_code_may_declare_what_the_context_has(typescript: ReusedSandbox) -> None:
    run = typescript.run(
        "const rows = context.rows;\nlet n = 1;\nfunction f() {}\nrows", context={"rows": [1], "n": 2, "f": 3}
    )
    assert (run.error, run.result) == (None, [1])


def test_modules_of_the_workspace_are_imported(typescript: ReusedSandbox) -> None:
    code = """
Deno.writeTextFileSync("helper.ts", `import path from "node:path";
import { base } from "./data/base.ts";
export { base as renamed } from "./data/base.ts";
export * from "./data/base.ts";
export enum Kind { A = "a" }
export const join = (...parts: string[]): string => path.join(...parts, base);
export function fail(): never {
  throw new Error("helper");
}
export const where = import.meta.filename;
`);
Deno.mkdirSync("data");
Deno.writeTextFileSync("data/base.ts", "export const base: string = 'b';");
Deno.writeTextFileSync("data/rows.json", "[1, 2]");
const helper = await import("./helper.ts");
const { default: rows } = await import("./data/rows.json", { with: { type: "json" } });
console.log(helper.join("a"), helper.renamed, helper.base, helper.Kind.A, rows, helper.where.endsWith("/helper.ts"));
helper.fail();
"""
    run = typescript.run(code)
    assert run.stdout == "a/b b b a [ 1, 2 ] true\n"
    assert (run.error["message"], run.error["line"]) == ("helper", 19)
    assert "fail (helper.ts:8:9)" in run.error["traceback"]


def test_modules_that_import_each_other_fail_at_once(typescript: ReusedSandbox) -> None:
    code = """
Deno.writeTextFileSync("a.ts", `import { b } from "./b.ts"; export const a = 1; b;`);
Deno.writeTextFileSync("b.ts", `import { a } from "./a.ts"; export const b = 1; a;`);
await import("./a.ts");
"""
    assert "imports itself" in typescript.run(code).error["message"]


def test_a_large_result_becomes_its_beginning(typescript: ReusedSandbox) -> None:
    run = typescript.run("Array.from({ length: 10_000 }, (_, row) => ({ row }))", outputBytes=1000)
    assert run.result_truncated
    assert run.result.startswith('[{"row":0}')
    assert len(json.dumps(run.result)) <= 1000
    run = typescript.run("'é'.repeat(10_000)", outputBytes=1000)
    assert run.result_truncated
    assert run.result.startswith("éé")
    assert run.result.endswith("éé")
    assert len(json.dumps(run.result, ensure_ascii=False).encode()) <= 1000


def test_very_large_output_is_bounded(typescript: ReusedSandbox) -> None:
    run = typescript.run("console.log('o'.repeat(5_000_000));\nconsole.error('e')", outputBytes=1000)
    assert len(run.stdout) < 1100
    assert run.stderr == "e\n"
    assert [note["kind"] for note in run.end["notes"]] == ["OutputCut"]


def test_errors_of_missing_rights_say_what_code_may_do(typescript: ReusedSandbox) -> None:
    run = typescript.run("Deno.readTextFileSync('/etc/hostname')")
    assert "--allow" not in run.error["message"]
    assert "working folder" in run.error["message"]
