/**
 * The agent's code as a script for the engine's REPL mode, which has top-level `await` and keeps variables.
 *
 * What that mode does not know is rewritten by the syntax tree, invisibly to the code: static imports and exports,
 * `import()`, a top-level `return`, and the last expression, whose value is the result.
 */

import { bindImport, HOOKS, listDeclared, listMentioned, rewriteExpressions } from "./imports.ts";
import { Edits, type Place, type Rewritten } from "./pieces.ts";
import { isFunction, type Node, parse, walk } from "./syntax.ts";

const RESULT_VARIABLE = "result";

/** Code that is ready to run. */
export interface Program {
  text: string;
  /** Whether the last statement is an expression, whose value is the result. */
  hasValue: boolean;
  /** Whether the code declares or assigns a variable `result`. */
  assignsResult: boolean;
  /** Names that the code declares, and later jobs of its session see. */
  declared: string[];
  /** Names that it declares by `var` in blocks, which can only be set later. */
  variables: string[];
  /** Return the place in the agent's code of a place in the text. */
  locate: (place: Place) => Place;
}

/**
 * Compile the agent's code. In a session, later jobs may use what it imports.
 *
 * @throws CodeSyntaxError
 */
export function compile(code: string, referrer: string, isSession = false): Program {
  const { text, tree, locate, last } = parse(code);
  const edits = new Edits(text);
  edits.prepend('"use strict"; ');
  const mentioned = listMentioned(tree);
  rewriteExpressions(tree, edits, referrer);
  for (const node of tree.body as Node[]) {
    rewriteStatement(node, edits, (each) => bindImport(each, mentioned, referrer, isSession));
  }
  if (isSession) declareAgain(tree.body, edits);
  rewriteReturns(tree, edits, text);
  holdAwaited(tree, edits);
  const value = last?.type === "ExpressionStatement" ? last.expression : null;
  if (value !== null) {
    // In parentheses, because the expression may be an object or a sequence.
    edits.replace(last!.start, value.start, `${HOOKS}.value = (${text.slice(last!.start, value.start)}`);
    edits.replace(value.end, value.end, ")");
  }
  const rewritten: Rewritten = edits.apply();
  return {
    text: rewritten.text,
    hasValue: value !== null,
    assignsResult: assigns(tree, RESULT_VARIABLE),
    declared: (tree.body as Node[]).flatMap(listDeclared),
    variables: listBlockVariables(tree),
    locate: (place) => locate(rewritten.locate(place)),
  };
}

function rewriteStatement(node: Node, edits: Edits, bind: (node: Node) => string): void {
  if (node.type === "ImportDeclaration") {
    edits.prepend(bind(node), node.start);
    edits.replace(node.start, node.end, "");
  } else if (node.type === "FunctionDeclaration") {
    hoistFunction(node, edits);
  } else if (node.type === "ExportNamedDeclaration" && node.declaration) {
    edits.replace(node.start, node.declaration.start, "");
    if (node.declaration.type === "FunctionDeclaration") hoistFunction(node.declaration, edits);
  } else if (node.type === "ExportNamedDeclaration" || node.type === "ExportAllDeclaration") {
    edits.replace(node.start, node.end, "");
  } else if (node.type === "ExportDefaultDeclaration") {
    const isDeclared = node.declaration.id && node.declaration.type.endsWith("Declaration");
    edits.replace(node.start, node.declaration.start, isDeclared ? "" : "void (");
    if (!isDeclared) edits.replace(node.declaration.end, node.declaration.end, ")");
    else if (node.declaration.type === "FunctionDeclaration") hoistFunction(node.declaration, edits);
  }
}

/** Declare a function by `let`, at the beginning: REPL mode lets a later job declare only such names again. */
function hoistFunction(node: Node, edits: Edits): void {
  edits.hoist(node.start, node.end, `let ${node.id.name} = `, "; ");
}

/** Declare the variables of a session by `let`: REPL mode declares only a name of the same sort again. */
function declareAgain(statements: readonly Node[], edits: Edits): void {
  const names = statements.flatMap(listDeclared);
  for (const statement of statements) {
    const node = statement.declaration ?? statement;
    if (node.type !== "VariableDeclaration" || !["const", "let", "var"].includes(node.kind)) continue;
    const own = listDeclared(node);
    if (own.some((name) => names.indexOf(name) !== names.lastIndexOf(name))) continue;
    const isHoisted = node.kind === "var" && node.declarations.every((each: Node) => each.id.type === "Identifier");
    if (isHoisted) {
      // As `var` is: its own value may mention it.
      edits.prepend(`let ${own.join(", ")}; `, node.start);
      edits.replace(node.start, node.start + "var".length, "");
    } else {
      edits.replace(node.start, node.start + node.kind.length, "let");
    }
  }
}

/** Turn each `return` outside of functions into a `throw` that no `catch` of the code sees. */
function rewriteReturns(tree: Node, edits: Edits, text: string): void {
  const handlers = new Set<Node>();
  walk(tree, (node, parents) => {
    if (isFunction(node)) return false;
    if (node.type === "ClassDeclaration" || node.type === "ClassExpression") return false;
    if (node.type !== "ReturnStatement") return;
    const end = node.start + "return".length;
    // In parentheses of their own, because the value may be a sequence.
    edits.replace(node.start, end, `throw ${HOOKS}.return${node.argument ? "((" : "()"}`);
    if (node.argument) edits.replace(node.argument.end, node.argument.end, "))");
    parents.forEach((parent, index) => {
      const isInBlock = parent.type === "TryStatement" && (parents[index + 1] ?? node) === parent.block;
      if (isInBlock && parent.handler) handlers.add(parent.handler);
    });
  });
  for (const handler of handlers) passReturns(handler, edits, text);
}

/** Keep what the program awaits at its top level alive (see Engine.run). */
function holdAwaited(tree: Node, edits: Edits): void {
  walk(tree, (node) => {
    if (isFunction(node)) return false;
    if (node.type === "AwaitExpression") {
      edits.replace(node.start, node.start + "await".length, `await ${HOOKS}.hold(`);
      edits.replace(node.argument.end, node.argument.end, ")");
    } else if (node.type === "ForOfStatement" && node.await) {
      edits.replace(node.right.start, node.right.start, `${HOOKS}.holdAll(`);
      edits.replace(node.right.end, node.right.end, ")");
    }
  });
}

function passReturns(handler: Node, edits: Edits, text: string): void {
  const { param, body } = handler;
  const inside = body.start + 1;
  if (param?.type === "Identifier") {
    edits.replace(inside, inside, ` ${HOOKS}.pass(${param.name});`);
    return;
  }
  const name = `${HOOKS}_error`;
  const pattern = param ? ` let ${text.slice(param.start, param.end)} = ${name};` : "";
  if (param) edits.replace(param.start, param.end, name);
  else edits.replace(handler.start + "catch".length, handler.start + "catch".length, ` (${name})`);
  edits.replace(inside, inside, ` ${HOOKS}.pass(${name});${pattern}`);
}

function listBlockVariables(tree: Node): string[] {
  const names: string[] = [];
  walk(tree, (node, parents) => {
    if (isFunction(node)) return false;
    if (node.type === "VariableDeclaration" && node.kind === "var" && parents.length > 1) {
      names.push(...listDeclared(node));
    }
  });
  return names;
}

function assigns(tree: Node, name: string): boolean {
  let found = (tree.body as Node[]).flatMap(listDeclared).includes(name);
  walk(tree, (node) => {
    if (isFunction(node)) return false;
    found ||= node.type === "AssignmentExpression" && node.left.type === "Identifier" && node.left.name === name;
  });
  return found;
}
