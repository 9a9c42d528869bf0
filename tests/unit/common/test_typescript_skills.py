"""Skills in TypeScript: what their code says of `run`, without a compiler."""

import pytest

from mcp_exec_common.skills.folder import SkillFolder, build_archive, read_archive
from mcp_exec_common.skills.interface import InvalidSkill
from mcp_exec_common.skills.languages import promote_code, read_interface

CODE = """
import { listIssues } from "servers/github"; // export function run
/* export function run() {} */
const text = "export function run(", template = `${`export function run(${1}`} }`, pattern = /["'`/]export/;

interface Options {
  owner: string;
  "since"?: string
  labels?: string[]
  state: "open" | "closed";
  limit?: number;
  more: Record<string, { deep: number }>;
}

export async function run({ owner, since, labels = [], state, limit = 10, more }: Options): Promise<number> {
  return limit / 2;
}
"""


def test_the_members_of_the_argument_become_a_schema() -> None:
    assert read_interface(CODE, "typescript").parameters == {
        "type": "object",
        "properties": {
            "owner": {"type": "string"},
            "since": {"type": "string"},
            "labels": {"type": "array", "items": {"type": "string"}},
            "state": {"enum": ["open", "closed"]},
            "limit": {"type": "number"},
            "more": {},
        },
        "required": ["owner", "state", "more"],
    }


@pytest.mark.parametrize(
    ("code", "parameters"),
    [
        ("export function run() {}", {"type": "object", "properties": {}, "additionalProperties": False}),
        (
            "export async function run({ a, b = 1, ...rest }) {}",
            {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a"]},
        ),
        (
            "export function run(given: { a: number; b?: boolean }) {}",
            {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "boolean"}}, "required": ["a"]},
        ),
        (
            "type Given = { a: string };\nexport function run(given: Given) {}",
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        ),
        (
            "function run({ a }) {}\nexport { run };",
            {"type": "object", "properties": {"a": {}}, "required": ["a"]},
        ),
        (
            "export const run = async ({ a }) => a;",
            {"type": "object", "properties": {"a": {}}, "required": ["a"]},
        ),
        ("export const run = () => 1;", {"type": "object", "properties": {}, "additionalProperties": False}),
        ("export const run = make({ a });", {"type": "object"}),
        ("const work = () => 1; export { work as run };", {"type": "object"}),
        ("export function run(given: Unknown) {}", {"type": "object", "properties": {}}),
    ],
)
def test_each_form_of_an_exported_function_is_read(code: str, parameters: object) -> None:
    assert read_interface(code, "typescript").parameters == parameters


@pytest.mark.parametrize(
    "code",
    [
        "",
        "function run() {}",
        "// export function run() {}",
        "const a = `export function run() {}`;",
        "{ export function run() {} }",
        "export function runAll() {}",
        "def run(): ...",
    ],
)
def test_code_that_exports_no_run_is_no_skill(code: str) -> None:
    for read in (lambda: read_interface(code, "typescript"), lambda: promote_code(code, [], "typescript")):
        with pytest.raises(InvalidSkill, match="it exports no function `run`"):
            read()


def test_a_run_that_exports_run_is_a_skill_as_it_is() -> None:
    code = "export function run() { return 1; }\nrun();"
    assert promote_code(code, ["a"], "typescript") == code


def test_a_folder_has_the_code_of_one_language() -> None:
    folder = SkillFolder(name="report", description="d", code=CODE, language="typescript")
    files = folder.to_files()
    assert sorted(files) == ["SKILL.md", "scripts/run.ts"]
    assert read_archive(build_archive(folder, version=1)) == folder
    for wrong in (files | {"scripts/run.py": "x"}, {"SKILL.md": files["SKILL.md"]}):
        with pytest.raises(InvalidSkill, match=r"it needs SKILL\.md and one of scripts/run\.py, scripts/run\.ts"):
            SkillFolder.from_files(wrong)
