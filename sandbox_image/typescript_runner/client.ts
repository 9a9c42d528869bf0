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
  /** Format of the tool's results: a key of FORMATS in mcp_exec_tools/overlays. */
  readonly resultFormat?: string;
  /** Whether the tool accepts other parameters, too. */
  readonly isOpen?: boolean;
}

/** Fields of an error besides its message. */
export interface ToolErrorFields {
  readonly tool?: string;
  readonly server?: string;
  readonly reason?: string | null;
  readonly causeName?: string | null;
  readonly code?: number | null;
  readonly parameters?: readonly string[];
  readonly suggestions?: readonly string[];
  readonly content?: readonly Record<string, unknown>[];
}

/** A tool call failed. The class itself means that the tool reported an error or that the call was invalid. */
export class ToolError extends Error {
  constructor(message: string, fields: ToolErrorFields = {}) {
    super(message);
    void fields;
  }
}

/** The execution, a policy, a person, a quota or a scan denied the call. `reason` names which. */
export class ToolDenied extends ToolError {}

/** The tool exceeded its time limit. The call was cancelled, but the tool may have done its work. */
export class ToolTimeout extends ToolError {}

/** The server answered a JSON-RPC error (`code`), or the server or the broker could not be reached. */
export class ToolProtocolError extends ToolError {}

/**
 * Call a tool for one of the functions below `servers`.
 *
 * `values` are what the function was called with: one object with all arguments by name, or values in the order of
 * `parameters`; a last value that is `undefined` is left out.
 */
export function callWrapped<T = unknown>(
  _tool: string,
  _values: readonly unknown[],
  _parameters: Parameters,
  _options: WrapperOptions = {},
): Promise<T> {
  throw new ToolError("not implemented");
}

/** Return arguments by their original names, from the values that a function was called with. */
export function bindArguments(
  _tool: string,
  _values: readonly unknown[],
  _parameters: Parameters,
  _options: WrapperOptions = {},
): Record<string, unknown> {
  throw new ToolError("not implemented");
}

/** Call an MCP tool, `SERVER.TOOL`, and return its result. */
export function callMcpTool<T = unknown>(
  _tool: string,
  _args: Readonly<Record<string, unknown>> = {},
  _options: { readonly timeoutSeconds?: number } = {},
): Promise<T> {
  throw new ToolError("not implemented");
}
