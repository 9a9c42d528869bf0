/** Arguments of a tool call: bound to parameters, and encoded as JSON. Nothing is changed. */

import { ToolError } from "./errors.ts";
import { findCloseNames, fold } from "./text.ts";
import { encodeAsJson } from "./values.ts";
import { ValueRefused } from "./walk.ts";

/** A parameter of a tool, in a table whose order is that of positional arguments. */
export interface Parameter {
  readonly required?: true;
}

/** Parameters of a tool by their original names, in the order of positional arguments. */
export type Parameters = Readonly<Record<string, Parameter>>;

/** How a wrapper's arguments are bound and its result is read. */
export interface WrapperOptions {
  /** The parameter's original name by its other spellings. */
  readonly spellings?: Readonly<Record<string, string>>;
  /** Arguments that every call of the function has. */
  readonly fixed?: Readonly<Record<string, unknown>>;
  /** Format of the tool's results, a key of FORMATS in mcp_exec_tools/overlays. */
  readonly resultFormat?: string | null;
  /** Whether the tool accepts other parameters, too. */
  readonly isOpen?: boolean;
}

/** Maximum size of the arguments of one call. */
const MAX_ARGUMENT_BYTES = 8 * 1024 * 1024;

/**
 * Return arguments by their original names.
 *
 * A single value that is an object has the arguments by name. Any other values are arguments themselves, in the order of
 * `parameters`; those that are undefined are left out.
 *
 * @throws ToolError (InvalidArguments): an argument is unknown, given twice or missing.
 */
export function bindArguments(
  tool: string,
  values: readonly unknown[],
  parameters: Parameters,
  options: WrapperOptions = {},
): Record<string, unknown> {
  const known = new Map(Object.entries(parameters));
  const given = trim(values);
  const isNamed = given.length === 1 && isRecord(given[0]);
  const named = isNamed ? Object.entries(given[0] as object) : bindValues(tool, given, [...known.keys()], parameters);
  const merged = new Map<string, unknown>();
  for (const [spelling, value] of named) {
    if (value === undefined) continue;
    const name = findParameter(spelling, known, options.spellings ?? {}) ?? (options.isOpen ? spelling : undefined);
    if (name === undefined) throw buildUnknownError(tool, spelling, parameters, options.spellings ?? {});
    if (merged.has(name)) throw buildError(tool, `the parameter ${name} is given twice`, parameters);
    merged.set(name, value);
  }
  const missing = [...known].filter(([name, { required }]) => required && !merged.has(name)).map(([name]) => name);
  if (missing.length > 0) {
    let message = `missing parameter${missing.length > 1 ? "s" : ""}: ${missing.join(", ")}`;
    if (!isNamed && merged.size > 0) {
      message += ` (positional arguments were taken as ${[...merged.keys()].join(", ")})`;
    }
    throw buildError(tool, message, parameters);
  }
  return { ...Object.fromEntries(merged), ...options.fixed };
}

/**
 * Encode the arguments as a JSON object, with dates, maps, sets and so on in the forms that results have.
 *
 * @throws ToolError (InvalidArguments): a value has no JSON that means the same, or the arguments are too large.
 */
export function encodeArguments(tool: string, values: Readonly<Record<string, unknown>>): string {
  let text: string | null;
  try {
    text = encodeAsJson(values, MAX_ARGUMENT_BYTES);
  } catch (error) {
    if (error instanceof ValueRefused) throw buildError(tool, error.message, {});
    throw error;
  }
  if (text === null) throw buildError(tool, "the arguments have more than 8 MiB", {});
  return text;
}

function trim(values: readonly unknown[]): readonly unknown[] {
  let end = values.length;
  while (end > 0 && values[end - 1] === undefined) end -= 1;
  return values.slice(0, end);
}

/** Return whether a value has arguments by name, and is no array, date or other value of its own. */
export function isRecord(value: unknown): value is Record<string, unknown> {
  if (typeof value !== "object" || value === null) return false;
  const prototype = Object.getPrototypeOf(value);
  return prototype === null || prototype === Object.prototype || Object.getPrototypeOf(prototype) === null;
}

function bindValues(
  tool: string,
  values: readonly unknown[],
  names: string[],
  parameters: Parameters,
): [string, unknown][] {
  if (values.length > names.length) {
    const most = names.length > 0 ? `at most ${names.length}, in this order: ${names.join(", ")}` : "no arguments";
    const given = `${values.length} positional argument${values.length > 1 ? "s were" : " was"} given`;
    throw buildError(tool, `${given}, it takes ${most}`, parameters);
  }
  return values.map((value, index) => [names[index], value]);
}

function findParameter(
  spelling: string,
  known: ReadonlyMap<string, unknown>,
  spellings: Readonly<Record<string, string>>,
): string | undefined {
  if (known.has(spelling)) return spelling;
  if (Object.hasOwn(spellings, spelling)) return spellings[spelling];
  if (spelling.length > 200) return undefined;
  const folded = fold(spelling);
  const same = [...known.keys()].filter((name) => fold(name) === folded);
  return same.length === 1 ? same[0] : undefined;
}

function buildUnknownError(
  tool: string,
  name: string,
  parameters: Parameters,
  spellings: Readonly<Record<string, string>>,
): ToolError {
  const close = findCloseNames(name, [...Object.keys(parameters), ...Object.keys(spellings)]);
  const suggestions = new Set(close.map((each) => (Object.hasOwn(parameters, each) ? each : spellings[each])));
  return buildError(tool, `there is no parameter ${name.slice(0, 100)}`, parameters, [...suggestions]);
}

function buildError(tool: string, message: string, parameters: Parameters, suggestions: string[] = []): ToolError {
  const listed = Object.entries(parameters).map(([name, { required }]) => (required ? `${name}*` : name));
  return new ToolError(message, { tool, reason: "InvalidArguments", parameters: listed, suggestions });
}
