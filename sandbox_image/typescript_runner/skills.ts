/**
 * Skills: reusable code that an approver has approved.
 *
 *     import { run } from "skills/profile-table";       // the newest approved version; profile-table-v2 is version 2
 *     import { searchSkills, runSkill, saveSkill } from "skills";
 *     await searchSkills("remove duplicates");
 *     const report = await runSkill("profile-table", { rows });
 *     saveSkill("double", "export function run(value: number) { return 2 * value; }", "Double a number.");
 */

import { listDeclared, nameOf } from "./imports.ts";
import { getContext } from "./run_context.ts";
import { type Node, parse } from "./syntax.ts";
import type { FoundTool, SearchOptions } from "./tool_discovery.ts";

/** Return the approved skills that match the query, best first. An empty query lists all. */
export async function searchSkills(query = "", options: SearchOptions = {}): Promise<FoundTool[]> {
  const { detailLevel = "with_description", limit = 20 } = options;
  const answer = await getContext().ask({ type: "search", query: String(query), detailLevel, limit, only: "skills" });
  if (typeof answer.error === "string") throw new TypeError(answer.error);
  return answer.tools as FoundTool[];
}

/**
 * Call a skill by its name and return its result.
 *
 * A name that the code computes must be listed in the execution's `spec.skills`.
 */
export async function runSkill<T = unknown>(name: string, ...values: unknown[]): Promise<T> {
  const module = await getContext().load(`skills/${name}`);
  return (await (module.run as (...values: unknown[]) => unknown)(...values)) as T;
}

/**
 * Save code as a draft of a skill. The execution's `status.skills` shows its name and version, or why not.
 *
 * Until an approver approves it, only executions of the same caller and user can use it.
 *
 * @param name lower-case letters and digits, in words that `-` separates.
 * @param code TypeScript source that exports a function `run`, or such a function. At most 64 KiB.
 * @param description what it does and when to use it, in one line.
 */
export function saveSkill(
  name: string,
  code: string | ((...values: never[]) => unknown),
  description: string,
  options: { readonly tools?: readonly string[]; readonly tags?: readonly string[] } = {},
): void {
  const source = typeof code === "function" ? `export const run = ${code};\n` : String(code);
  if (!exportsRun(parse(source).tree)) throw new TypeError("code: it exports no function `run`");
  const { tools = [], tags = [] } = options;
  getContext().skills.save({ name: String(name), code: source, description: String(description), tools, tags });
}

function exportsRun(tree: Node): boolean {
  return (tree.body as Node[]).some((node) => {
    if (node.type !== "ExportNamedDeclaration") return false;
    const named = node.specifiers.map((each: Node) => nameOf(each.exported));
    return [...named, ...(node.declaration ? listDeclared(node) : [])].includes("run");
  });
}
