/** Errors of tool calls: `ToolError` is any of them, its subclasses name the part that failed. */

import { shorten } from "./text.ts";

const MESSAGE_CHARACTERS = 16_384;
/** Maximum number of parameters and of suggestions. */
const MAX_LISTED = 50;

/** Fields of an error besides its message. */
export interface ToolErrorFields {
  /** SERVER.TOOL, or the part of it that is known. */
  readonly tool?: string;
  /** The tool's server. */
  readonly server?: string;
  /** Reason in one word, such as InvalidArguments or NotApproved. */
  readonly reason?: string | null;
  /** Why a server is unavailable, in one word, such as NameNotResolved or CommandExited. */
  readonly problem?: string | null;
  /** Code of a JSON-RPC error. */
  readonly code?: number | null;
  /** All parameters of the tool, if the arguments were wrong. Required ones end with a star. */
  readonly parameters?: readonly string[];
  /** Names that may have been meant. */
  readonly suggestions?: readonly string[];
  /** Content of the tool's answer besides text, as MCP content blocks. */
  readonly content?: readonly Record<string, unknown>[];
}

/** A tool call failed. The class itself means that the tool reported an error or that the call was invalid. */
export class ToolError extends Error {
  override readonly name: string = "ToolError";
  readonly tool: string;
  readonly server: string;
  readonly reason: string | null;
  readonly problem: string | null;
  readonly code: number | null;
  readonly parameters: readonly string[];
  readonly suggestions: readonly string[];
  readonly content: readonly Record<string, unknown>[];
  /** Message of the tool, its server or the broker, without what is added for the reader of the error. */
  readonly text: string;

  constructor(text: string, fields: ToolErrorFields = {}) {
    super(formatMessage(text, fields));
    this.text = text;
    this.tool = fields.tool ?? "";
    this.server = fields.server || this.tool.split(".")[0];
    this.reason = fields.reason ?? null;
    this.problem = fields.problem ?? null;
    this.code = fields.code ?? null;
    this.parameters = [...(fields.parameters ?? [])];
    this.suggestions = [...(fields.suggestions ?? [])];
    this.content = [...(fields.content ?? [])];
  }
}

/** The execution, a policy, a person, a quota or a scan denied the call. `reason` names which. */
export class ToolDenied extends ToolError {
  override readonly name = "ToolDenied";
}

/** The tool exceeded its time limit. The call was cancelled, but the tool may have done its work. */
export class ToolTimeout extends ToolError {
  override readonly name = "ToolTimeout";
}

/** The server answered a JSON-RPC error (`code`), or the server or the broker could not be reached. */
export class ToolProtocolError extends ToolError {
  override readonly name = "ToolProtocolError";
}

const KINDS = new Map([ToolError, ToolDenied, ToolTimeout, ToolProtocolError].map((kind) => [kind.name, kind]));

function formatMessage(text: string, { tool, code, reason, suggestions, parameters }: ToolErrorFields): string {
  let message = tool ? `${tool}: ${text}` : text;
  if (code !== undefined && code !== null) message += ` (JSON-RPC error ${code})`;
  else if (reason) message += ` (${reason})`;
  if (suggestions?.length && !text.includes("did you mean")) message += `\nDid you mean: ${suggestions.join(", ")}?`;
  if (parameters?.length) message += `\nParameters of ${tool} (* = required): ${parameters.join(", ")}`;
  return message;
}

/** Return the error in a broker's answer. Missing fields are empty. */
export function parseError(answer: Readonly<Record<string, unknown>>, tool: string): ToolError {
  const kind = KINDS.get(parseText(answer.kind)) ?? ToolProtocolError;
  const { code, content } = answer;
  return new kind(parseText(answer.message) || "the call failed without a message", {
    tool: parseText(answer.tool) || tool,
    server: parseText(answer.server),
    reason: parseText(answer.reason) || null,
    problem: parseText(answer.cause) || null,
    code: typeof code === "number" && Number.isInteger(code) ? code : null,
    parameters: parseTexts(answer.parameters),
    suggestions: parseTexts(answer.suggestions),
    content: Array.isArray(content) ? content.filter((block) => typeof block === "object" && block !== null) : [],
  });
}

function parseText(value: unknown): string {
  return typeof value === "string" ? shorten(value, MESSAGE_CHARACTERS) : "";
}

function parseTexts(value: unknown): string[] {
  return Array.isArray(value) ? value.slice(0, MAX_LISTED).filter((text) => typeof text === "string") : [];
}
