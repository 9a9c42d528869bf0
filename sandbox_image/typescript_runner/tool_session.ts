/** Tool calls of one execution: events, errors, results. One session per job. */

import { type Answer, Broker, BrokerLost, BrokerRefused, BrokerUnreachable } from "./broker.ts";
import { encodeArguments } from "./arguments.ts";
import { parseError, ToolDenied, ToolError, ToolProtocolError } from "./errors.ts";
import type { Notes } from "./notes.ts";
import { type Emit, MAX_NOTES, type Message, TOOL_MESSAGE_CHARACTERS, type ToolAccess } from "./protocol.ts";
import { ResultFiles } from "./results.ts";
import type { Frame, Stacks } from "./stack.ts";
import { countBytes, shorten } from "./text.ts";

const NO_TOOLS =
  "this execution may call no tools: its spec.tools is empty. The creator of the execution allows tools by name or" +
  ' pattern, such as spec.tools: ["github.create_issue", "filesystem.*"]';
const encoder = new TextEncoder();
const now = performance.now.bind(performance);

/** A promise of a tool's result that knows whether anything waits for it. */
export class ToolCall<T> extends Promise<T> {
  static override get [Symbol.species](): PromiseConstructor {
    return Promise;
  }

  isAwaited = false;

  override then<A = T, B = never>(
    onValue?: ((value: T) => A | PromiseLike<A>) | null,
    onError?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    this.isAwaited = true;
    return super.then(onValue, onError);
  }
}

interface OpenCall {
  tool: string;
  promise: ToolCall<unknown>;
  /** Where the agent's code called. */
  frame: Frame | undefined;
}

/** What a session works with. */
export interface SessionParts {
  access: ToolAccess | null;
  emit: Emit;
  workspace: string;
  notes: Notes;
  stacks: Stacks;
}

/** Makes the tool calls of one execution. */
export class ToolSession {
  readonly #parts: SessionParts;
  readonly #broker: Broker | null;
  readonly #files: ResultFiles;
  readonly #calls: OpenCall[] = [];
  readonly #open = new Set<Promise<unknown>>();
  #number = 0;

  constructor(parts: SessionParts) {
    this.#parts = parts;
    this.#broker = parts.access === null ? null : new Broker(parts.access);
    this.#files = new ResultFiles(parts.workspace);
  }

  /**
   * Call a tool. The arguments are made now, so that an error in them has the line of the call.
   *
   * `read` makes the caller's value of the result.
   */
  call<T>(
    tool: string,
    makeArguments: () => Record<string, unknown>,
    read: (value: unknown) => T,
    seconds?: number,
  ): Promise<T> {
    const origin = new Error();
    const frame = this.#parts.stacks.list(origin)[0];
    const work = this.#run(tool, makeArguments, seconds).then(read).catch((error: unknown) => {
      if (error instanceof Error) this.#parts.stacks.move(origin, error);
      throw error;
    });
    const promise = new ToolCall<T>((resolve, reject) => work.then(resolve, reject));
    // Not of the promise itself: with a handler, a failure that nobody awaits would go unnoticed.
    const settled: Promise<void> = work.then(() => {}, () => {});
    this.#open.add(settled);
    settled.then(() => this.#open.delete(settled));
    this.#calls.push({ tool, promise, frame });
    if (this.#calls.length > 2 * MAX_NOTES) this.#forgetAwaited();
    return promise;
  }

  /** Whether a call has no result yet. */
  get isBusy(): boolean {
    return this.#open.size > 0;
  }

  /** Wait for the results of all calls. */
  async finish(): Promise<void> {
    while (this.#open.size > 0) await Promise.all(this.#open);
  }

  /** Return the place of the newest call that has no result. */
  findWaiting(): Frame | undefined {
    return this.isBusy ? this.#calls.at(-1)?.frame : undefined;
  }

  /** Add notes on the calls that nothing has awaited. */
  writeNotes(): void {
    for (const { tool, promise, frame } of this.#calls) {
      if (promise.isAwaited) continue;
      const where = frame === undefined ? "" : ` at line ${frame.place.line}`;
      this.#parts.notes.add(
        "NotAwaited",
        `${tool} was called without \`await\`${where}, so its result was not used: write \`await\`.`,
      );
    }
  }

  /** Cancel the calls that run, and close the connections. */
  close(): void {
    this.#broker?.close();
  }

  #forgetAwaited(): void {
    const kept = this.#calls.filter((call) => !call.promise.isAwaited).slice(-10 * MAX_NOTES);
    this.#calls.splice(0, this.#calls.length, ...kept);
  }

  async #run(
    tool: string,
    makeArguments: () => Record<string, unknown>,
    seconds: number | undefined,
  ): Promise<unknown> {
    const values = makeArguments();
    if (this.#broker === null) throw new ToolDenied(NO_TOOLS, { tool, reason: "NotAllowed" });
    const text = encodeArguments(tool, values);
    const id = `call-${(this.#number += 1)}`;
    this.#parts.emit({ type: "tool_call", id, tool, argumentBytes: countBytes(text) });
    const started = now();
    let size = 0;
    let failure: unknown = null;
    try {
      const limit = seconds === undefined ? {} : { timeoutSeconds: seconds };
      const head = JSON.stringify({ id, tool, ...limit });
      const answer = await this.#send(tool, encoder.encode(`${head.slice(0, -1)},"arguments":${text}}`));
      size = answer.size;
      return this.#readValue(tool, answer.message);
    } catch (error) {
      failure = error;
      throw error;
    } finally {
      this.#emitEnd(id, tool, failure, size, now() - started);
    }
  }

  async #send(tool: string, body: Uint8Array): Promise<Answer> {
    try {
      return await this.#broker!.call(body, (event) => this.#handleEvent(event));
    } catch (error) {
      throw convertFailure(tool, error);
    }
  }

  #handleEvent(event: Message): void {
    if (event.type !== "approval") return;
    const { id, tool, expiresAt } = event;
    this.#parts.emit({ type: "approval", id, tool, expiresAt });
  }

  #readValue(tool: string, answer: Message): unknown {
    if (answer.type === "error") throw parseError(answer, tool);
    const notes = Array.isArray(answer.notes) ? answer.notes.slice(0, MAX_NOTES) : [];
    for (const note of notes) this.#parts.notes.add("ValueChanged", String(note), tool);
    if ("value" in answer) return answer.value;
    if (Array.isArray(answer.content)) return this.#files.build(answer.content, answer.structured);
    throw new ToolProtocolError("the broker's answer has no value", { tool, reason: "ConnectionLost" });
  }

  #emitEnd(id: string, tool: string, failure: unknown, size: number, milliseconds: number): void {
    const kind = failure === null ? null : failure instanceof Error ? failure.name : "Error";
    const message = failure instanceof ToolError ? { message: shorten(failure.text, TOOL_MESSAGE_CHARACTERS) } : {};
    const ms = Math.round(milliseconds * 1000) / 1000;
    this.#parts.emit({ type: "tool_result", id, tool, ok: failure === null, kind, ...message, bytes: size, ms });
  }
}

function convertFailure(tool: string, error: unknown): unknown {
  if (error instanceof BrokerUnreachable) {
    const message = `the tool broker can't be reached (${error.message}); the tool was not called`;
    return new ToolProtocolError(message, { tool, reason: "ServerUnavailable" });
  }
  if (error instanceof BrokerLost) {
    const message = `no answer came (${error.message}); the tool may have done its work`;
    return new ToolProtocolError(message, { tool, reason: "ConnectionLost" });
  }
  return error instanceof BrokerRefused ? convertRefusal(tool, error) : error;
}

function convertRefusal(tool: string, refusal: BrokerRefused): ToolError {
  const message = refusal.message || `the broker answered ${refusal.status}`;
  if (refusal.status === 401) {
    return new ToolDenied(`the broker does not know this execution: ${message}`, { tool, reason: "ExecutionEnded" });
  }
  if (refusal.status === 413) {
    return new ToolError(`the arguments are too large: ${message}`, { tool, reason: "InvalidArguments" });
  }
  if (refusal.status === 429) return new ToolDenied(message, { tool, reason: "RateLimited" });
  if (refusal.status < 500) return new ToolError(message, { tool, reason: "InvalidArguments" });
  return new ToolProtocolError(`the broker failed: ${message}`, { tool, reason: "ServerUnavailable" });
}
