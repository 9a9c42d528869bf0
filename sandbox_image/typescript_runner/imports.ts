/** Static imports as calls of the runner's own loader, which finds what Deno would not. */

import { type Edits } from "./pieces.ts";
import { listNames, type Node, walk } from "./syntax.ts";

/** Global name of what rewritten code calls. */
export const HOOKS = "__mcp";

/** Return the names that code mentions anywhere but in its imports. TypeScript leaves out imports of other names. */
export function listMentioned(tree: Node): Set<string> {
  const names = new Set<string>();
  walk(tree, (node) => {
    if (node.type === "ImportDeclaration") return false;
    if (node.type === "Identifier") names.add(node.name);
  });
  return names;
}

/** Replace `import` of `import(...)` and `import.meta`. */
export function rewriteExpressions(tree: Node, edits: Edits, referrer: string): void {
  walk(tree, (node) => {
    if (node.type === "ImportExpression") {
      edits.replace(node.start, node.start + "import".length, `${HOOKS}.importFrom(${JSON.stringify(referrer)})`);
    } else if (node.type === "MetaProperty" && node.meta.name === "import") {
      edits.replace(node.start, node.end, `${HOOKS}.meta(${JSON.stringify(referrer)})`);
    }
  });
}

/**
 * Return a statement that binds what an import statement names, at any place of the code.
 *
 * Names that the code does not mention are left out, as TypeScript does it: they may be types. With `keepsAll` they are
 * bound if the module has them, because a later job of the session may mention them.
 */
export function bindImport(node: Node, mentioned: ReadonlySet<string>, referrer: string, keepsAll = false): string {
  const isNeeded = (each: Node) => mentioned.has(each.local.name);
  const bound = keepsAll ? (node.specifiers as Node[]) : (node.specifiers as Node[]).filter(isNeeded);
  if (node.specifiers.length > 0 && bound.length === 0) return "";
  const named = bound.filter((each) => each.type !== "ImportNamespaceSpecifier");
  const names = JSON.stringify(named.filter(isNeeded).map(nameImported));
  const load = `await ${HOOKS}.import(${JSON.stringify(node.source.value)}, ${names}, ${JSON.stringify(referrer)})`;
  const fields = named.map((each) => `${JSON.stringify(nameImported(each))}: ${each.local.name}`);
  const whole = bound.find((each) => each.type === "ImportNamespaceSpecifier");
  const kind = keepsAll ? "let" : "const";
  if (whole === undefined) return fields.length > 0 ? `${kind} {${fields.join(", ")}} = ${load}; ` : `${load}; `;
  const rest = fields.length > 0 ? `${kind} {${fields.join(", ")}} = ${whole.local.name}; ` : "";
  return `${kind} ${whole.local.name} = ${load}; ${rest}`;
}

function nameImported(specifier: Node): string {
  return specifier.type === "ImportDefaultSpecifier" ? "default" : nameOf(specifier.imported);
}

/** Return the name of an imported or exported part, which may be a text. */
export function nameOf(node: Node): string {
  return node.type === "Literal" ? String(node.value) : node.name;
}

/** Return the names that a statement declares at its level. */
export function listDeclared(statement: Node): string[] {
  const node = statement.declaration ?? statement;
  if (node.type === "VariableDeclaration") return node.declarations.flatMap((each: Node) => listNames(each.id));
  if (node.type === "FunctionDeclaration" || node.type === "ClassDeclaration") return node.id ? [node.id.name] : [];
  if (node.type === "ImportDeclaration") return node.specifiers.map((each: Node) => each.local.name);
  return [];
}
