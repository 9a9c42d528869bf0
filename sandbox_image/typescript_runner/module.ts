/** A module of the workspace, or of a skill, as one that the engine can import from a text. */

import { bindImport, HOOKS, listMentioned, nameOf, rewriteExpressions } from "./imports.ts";
import { Edits, type Place } from "./pieces.ts";
import { type Node, parse } from "./syntax.ts";

/** Code of a module, and the places of its lines. */
export interface ModuleCode {
  text: string;
  locate: (place: Place) => Place;
}

/** Return the names that another module exports. */
export type ListExports = (specifier: string) => Promise<string[]>;

/**
 * Rewrite the code of a module.
 *
 * @param referrer is the path that relative imports of the module start from.
 * @throws CodeSyntaxError
 */
export async function compileModule(code: string, referrer: string, listExports: ListExports): Promise<ModuleCode> {
  const { text, tree, locate } = parse(code);
  const edits = new Edits(text);
  const mentioned = listMentioned(tree);
  rewriteExpressions(tree, edits, referrer);
  let number = 0;
  for (const node of tree.body as Node[]) {
    if (node.type === "ImportDeclaration") {
      edits.prepend(bindImport(node, mentioned, referrer), node.start);
      edits.replace(node.start, node.end, "");
    } else if (node.source && (node.type === "ExportNamedDeclaration" || node.type === "ExportAllDeclaration")) {
      const pairs = await listReexports(node, listExports);
      edits.prepend(reexport(node, pairs, number += 1, referrer), node.start);
      edits.replace(node.start, node.end, "");
    }
  }
  const rewritten = edits.apply();
  return { text: rewritten.text, locate: (place) => locate(rewritten.locate(place)) };
}

/** Return the names of the other module's parts and of those of this one. */
async function listReexports(node: Node, listExports: ListExports): Promise<[string, string][]> {
  if (node.type === "ExportNamedDeclaration") {
    return node.specifiers.map((each: Node) => [nameOf(each.local), nameOf(each.exported)]);
  }
  if (node.exported) return [];
  const names = await listExports(node.source.value);
  return names.filter((name) => name !== "default").map((name) => [name, name]);
}

function reexport(node: Node, pairs: [string, string][], number: number, referrer: string): string {
  const whole = `${HOOKS}_module${number}`;
  const names = JSON.stringify(pairs.map(([name]) => name));
  const load = `const ${whole} = await ${HOOKS}.import(${JSON.stringify(node.source.value)}, ${names}, ${
    JSON.stringify(referrer)
  }); `;
  if (node.exported) return `${load}export { ${whole} as ${JSON.stringify(nameOf(node.exported))} }; `;
  const parts = pairs.map(([name, own], index) => {
    const local = `${whole}_${index}`;
    return `const ${local} = ${whole}[${JSON.stringify(name)}]; export { ${local} as ${JSON.stringify(own)} }; `;
  });
  return load + parts.join("");
}
