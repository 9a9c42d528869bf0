/**
 * Client of MCP tools for code that runs in this sandbox.
 *
 *     import { callMcpTool, ToolError } from "client";
 *     const issue = await callMcpTool("github.create_issue", { owner: "o", repo: "r", title: "Bug" });
 *
 * The functions below `servers` do the same with types: `import { createIssue } from "servers/github"`.
 * `progress(done, total, text)` reports how far the code is; `show(value, {name, title})` shows a text, a table or a
 * file. Every failure is a `ToolError`; ToolDenied, ToolTimeout and ToolProtocolError are kinds of it.
 */

import { bindArguments, isRecord, type Parameters, type WrapperOptions } from "./arguments.ts";
import { ToolError } from "./errors.ts";
import { readResult } from "./results.ts";
import { getContext } from "./run_context.ts";
import type { ShowOptions } from "./show.ts";

export { bindArguments, type Parameter, type Parameters, type WrapperOptions } from "./arguments.ts";
export { ToolDenied, ToolError, type ToolErrorFields, ToolProtocolError, ToolTimeout } from "./errors.ts";
export { ResultFile, type ResultLink, ToolResult } from "./results.ts";
export type { ShowOptions } from "./show.ts";
export { describeTools, type FoundTool, type SearchOptions, searchTools } from "./tool_discovery.ts";

/**
 * Call a tool for one of the functions below `servers`.
 *
 * A function returns this promise itself, and not over an `async` function of its own: the sandbox tells of calls that
 * nothing awaits.
 *
 * @param values what the function was called with: one object with all arguments by name, or values in the order of
 * `parameters`. Values at the end that are undefined are left out.
 */
export function callWrapped<T = unknown>(
  tool: string,
  values: readonly unknown[],
  parameters: Parameters,
  options: WrapperOptions = {},
): Promise<T> {
  const format = options.resultFormat;
  const read = (value: unknown) => (format ? readResult(format, value) : value) as T;
  return getContext().tools.call(tool, () => bindArguments(tool, values, parameters, options), read);
}

/** Options of one call. */
export interface CallOptions {
  /** Maximum duration of the call, within the execution's own limit. */
  readonly timeoutSeconds?: number;
}

/**
 * Call an MCP tool and return its result: structured content, else parsed JSON, else text. A ToolResult if the tool sent
 * files.
 *
 * @param tool `github.create_issue` or `mcp__github__create_issue`; snake_case and camelCase both work.
 * @throws ToolError: the tool failed, or the arguments are wrong.
 */
export function callMcpTool<T = unknown>(
  tool: string,
  args: Readonly<Record<string, unknown>> = {},
  options: CallOptions = {},
): Promise<T> {
  const makeArguments = () => {
    if (typeof tool !== "string") {
      throw new ToolError("the name of a tool is a text such as 'github.create_issue'", { reason: "NoSuchTool" });
    }
    if (isRecord(args)) return args;
    const message = "the arguments are one object with the parameters by name";
    throw new ToolError(message, { tool, reason: "InvalidArguments" });
  };
  return getContext().tools.call(String(tool), makeArguments, (value) => value as T, options.timeoutSeconds);
}

/**
 * Report how far the code is. Who follows the execution sees it at once.
 *
 * @param done what is done, in any unit. It should grow.
 * @param total what is to be done in all, in the same unit, if it is known.
 * @param text what the code does now, at most 200 characters.
 */
export function progress(done: number, total?: number | null, text = ""): void {
  getContext().progress.report(done, total, text);
}

/**
 * Show a value to the people who read the result; they get a file, the model a short text.
 *
 * @param value text, bytes, a list of objects (a table), plain data, or the path of a file.
 */
export function show(value: unknown, options: ShowOptions | string = {}): void {
  getContext().artifacts.show(value, typeof options === "string" ? { name: options } : options);
}
