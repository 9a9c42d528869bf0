/** Report of a run: its value, or its error with type, message, line and the agent's own frames. Each part is bounded. */

import { shorten } from "./text.ts";
import {
  type ErrorFields,
  type LimitName,
  MESSAGE_CHARACTERS,
  type Report,
  TRACEBACK_CHARACTERS,
  TYPE_CHARACTERS,
} from "./protocol.ts";
import { CodeSyntaxError } from "./syntax.ts";
import { formatFrames, type Frame, type Stacks } from "./stack.ts";

const MAX_CAUSES = 5;
const MEMORY_TEXTS = ["Array buffer allocation failed", "Invalid array buffer length", "WebAssembly.Memory()"];
const STORAGE_CODES = ["ENOSPC", "EFBIG", "EDQUOT"];

/** Build the message `done` of code without a value. */
export function reportEnd(fields: Partial<Report> = {}): Report {
  return {
    type: "done",
    hasValue: false,
    value: null,
    truncated: false,
    error: null,
    exitCode: null,
    limit: null,
    peakMemoryBytes: Deno.memoryUsage().rss,
    ...fields,
  };
}

/** Return an error as clients see it. */
export function describeError(error: unknown, stacks: Stacks, file: string): ErrorFields {
  if (error instanceof CodeSyntaxError) {
    const frame = { file, place: error.place, name: "" };
    return describe("SyntaxError", error.message, [frame], file, "");
  }
  if (!isError(error)) {
    const message = `${describeThrown(error)} was thrown, which is no Error`;
    return describe("Error", message, [], file, "");
  }
  return describe(readName(error), readMessage(error), stacks.list(error), file, describeCauses(error, stacks));
}

function describe(type: string, message: string, frames: Frame[], file: string, causes: string): ErrorFields {
  const inCode = frames.find((frame) => frame.file === file);
  const head = message === "" ? type : `${type}: ${message}`;
  return {
    type: shorten(type, TYPE_CHARACTERS),
    message: shorten(message.toWellFormed(), MESSAGE_CHARACTERS),
    line: inCode?.place.line ?? null,
    traceback: shorten(`${head}${formatFrames(frames)}${causes}\n`.toWellFormed(), TRACEBACK_CHARACTERS),
  };
}

function describeCauses(error: Error, stacks: Stacks): string {
  let text = "";
  const seen = new Set<unknown>([error]);
  for (let cause = readField(error, "cause"); seen.size <= MAX_CAUSES; cause = readField(cause, "cause")) {
    if (cause === undefined || cause === null || seen.has(cause)) break;
    seen.add(cause);
    const head = isError(cause) ? `${readName(cause)}: ${readMessage(cause)}` : describeThrown(cause);
    text += `\nCaused by ${head}${formatFrames(stacks.list(cause))}`;
  }
  return text;
}

/** Return whether a value is an error, whatever made it. */
export function isError(value: unknown): value is Error {
  return value instanceof Error || Object.prototype.toString.call(value) === "[object Error]";
}

function describeThrown(value: unknown): string {
  try {
    return shorten(typeof value === "string" ? JSON.stringify(value) : Deno.inspect(value, { colors: false }), 500);
  } catch {
    return "A value";
  }
}

function readField(value: unknown, name: string): unknown {
  try {
    return (value as Record<string, unknown>)[name];
  } catch {
    return undefined;
  }
}

function readName(error: Error): string {
  const name = readField(error, "name");
  const own = (readField(error, "constructor") as { name?: unknown } | undefined)?.name;
  // A class that sets no name has that of its base.
  if (name === "Error" && typeof own === "string" && own !== "") return own;
  return typeof name === "string" && name !== "" ? name : "Error";
}

function readMessage(error: Error): string {
  const message = readField(error, "message");
  if (typeof message !== "string") return "";
  return explainPermission(message);
}

/** Return the message without advice on Deno's command line, which code can't use. */
function explainPermission(message: string): string {
  const at = message.indexOf(", run again with the --allow-");
  if (at < 0 || !message.startsWith("Requires ")) return message;
  return `${message.slice(0, at)}, which code of a sandbox does not have: it reads and writes files of its working` +
    " folder and of the temporary folder, and calls tools";
}

/** Return the limit that made the code fail, if any. */
export function findLimit(error: unknown): LimitName | null {
  if (!isError(error)) return null;
  const message = String(readField(error, "message"));
  if (error instanceof RangeError && MEMORY_TEXTS.some((text) => message.includes(text))) return "memory";
  // A thread that the system refuses to start. Sockets never report it: they wait.
  if (readField(error, "name") === "WouldBlock") return "processes";
  const code = String(readField(error, "code"));
  if (STORAGE_CODES.includes(code) || /\(os error (27|28|122)\)/.test(message)) return "storage";
  return null;
}

/** Return a sentence that says how long a result is and what is left of it. */
export function describeCut(size: number | null, limit: number, isText: boolean): string {
  if (size === null) {
    return `It has more than the ${limit} bytes of limits.outputBytes: it is a text with the beginning.`;
  }
  const what = isText ? "" : ", so it is a text";
  return `It has ${size} bytes as JSON, more than the ${limit} of limits.outputBytes: its middle is cut${what}.`;
}
