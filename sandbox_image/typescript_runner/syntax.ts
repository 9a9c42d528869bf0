/** Syntax trees of code: types removed by Deno, the rest read by acorn. */

import * as nodeModule from "node:module";
import { type Place } from "./pieces.ts";
import { splitMap } from "./sourcemap.ts";
import * as acorn from "./vendor/acorn.mjs";

/** A node of the syntax tree, as ESTree describes it. */
// deno-lint-ignore no-explicit-any
export type Node = { type: string; start: number; end: number } & Record<string, any>;

/** JavaScript of TypeScript code, its tree, and the places of both. */
export interface Parsed {
  text: string;
  tree: Node;
  /** Return the place in the TypeScript of a place in the text. */
  locate: (place: Place) => Place;
  /** The last statement of the code as it was written. */
  last: Node | undefined;
}

/** Code that is no TypeScript. */
export class CodeSyntaxError extends SyntaxError {
  readonly place: Place;

  constructor(message: string, place: Place) {
    super(message);
    this.name = "SyntaxError";
    this.place = place;
  }
}

type Strip = (code: string, options: Record<string, unknown>) => string;
// Deno's types do not declare it yet.
const strip = (nodeModule as unknown as { stripTypeScriptTypes: Strip }).stripTypeScriptTypes;
const OPTIONS = {
  ecmaVersion: "latest",
  sourceType: "module",
  allowReturnOutsideFunction: true,
  allowAwaitOutsideFunction: true,
  allowHashBang: true,
};
const PLACE_MARKER = "at file:///stripTypeScriptTypes.ts:";

/**
 * Remove types from code and parse the rest.
 *
 * Most types are replaced by spaces, which moves nothing. Those that are more than types (`enum`, `namespace`) are
 * transformed with a map.
 *
 * @throws CodeSyntaxError
 */
export function parse(code: string): Parsed {
  const { text, locate } = removeTypes(code);
  try {
    const tree = acorn.parse(text, OPTIONS) as Node;
    // A transformation of namespaces adds their declarations at the end.
    const written = (tree.body as Node[]).filter((node) => text === code || !isBareDeclaration(node));
    return { text, tree, locate, last: written.at(-1) };
  } catch (error) {
    throw convertError(error, locate);
  }
}

function isBareDeclaration(node: Node): boolean {
  return node.type === "VariableDeclaration" && node.kind === "var" &&
    node.declarations.every((each: Node) => !each.init);
}

function removeTypes(code: string): { text: string; locate: (place: Place) => Place } {
  try {
    return { text: strip(code, { mode: "strip" }), locate: (place) => place };
  } catch {
    try {
      return splitMap(strip(code, { mode: "transform", sourceMap: true }));
    } catch (error) {
      throw readStripError(error);
    }
  }
}

/** Return the error of Deno's parser with its place, which is in the text of the error. */
function readStripError(error: unknown): CodeSyntaxError {
  const text = error instanceof Error ? error.message : String(error);
  const [first] = text.split("\n");
  const message = first.startsWith("SyntaxError: ") ? first.slice("SyntaxError: ".length) : first;
  const at = text.indexOf(PLACE_MARKER);
  const [line, column] = at < 0 ? [] : text.slice(at + PLACE_MARKER.length).split(":").map(Number.parseFloat);
  return new CodeSyntaxError(message, { line: line || 1, column: column || 1 });
}

function convertError(error: unknown, locate: (place: Place) => Place): CodeSyntaxError {
  if (error instanceof RangeError) return new CodeSyntaxError("the code is nested too deeply", { line: 1, column: 1 });
  const { message, loc } = error as { message: string; loc?: { line: number; column: number } };
  if (loc === undefined) throw error;
  // acorn's message ends with the place.
  const end = message.lastIndexOf(" (");
  const place = locate({ line: loc.line, column: loc.column + 1 });
  return new CodeSyntaxError(end < 0 ? message : message.slice(0, end), place);
}

/** Call `visit` for each node below a node, parents first. What it returns is false for nodes whose parts are skipped. */
export function walk(root: Node, visit: (node: Node, parents: readonly Node[]) => boolean | void): void {
  const parents: Node[] = [];
  const waiting: (Node | null)[] = [root];
  while (waiting.length > 0) {
    const node = waiting.pop() as Node | null;
    if (node === null) {
      parents.pop();
      continue;
    }
    if (visit(node, parents) === false) continue;
    parents.push(node);
    waiting.push(null);
    const children = listChildren(node);
    for (let index = children.length - 1; index >= 0; index -= 1) waiting.push(children[index]);
  }
}

function listChildren(node: Node): Node[] {
  const children: Node[] = [];
  for (const value of Object.values(node)) {
    for (const item of Array.isArray(value) ? value : [value]) {
      if (typeof item === "object" && item !== null && typeof item.type === "string") children.push(item);
    }
  }
  return children;
}

const FUNCTIONS = new Set(["FunctionDeclaration", "FunctionExpression", "ArrowFunctionExpression", "StaticBlock"]);

/** Return whether a node is a function, or another part of code whose `return` is not the program's. */
export function isFunction(node: Node): boolean {
  return FUNCTIONS.has(node.type);
}

/** Return the names that a pattern declares. */
export function listNames(pattern: Node | null): string[] {
  if (pattern === null) return [];
  if (pattern.type === "Identifier") return [pattern.name];
  if (pattern.type === "ObjectPattern") {
    return pattern.properties.flatMap((p: Node) => listNames(p.value ?? p.argument));
  }
  if (pattern.type === "ArrayPattern") return pattern.elements.flatMap(listNames);
  return listNames(pattern.left ?? pattern.argument ?? null);
}
