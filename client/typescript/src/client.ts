/** Client of a gateway. */
import { type Answer, type Given, parseJson } from "./api.ts";
import { check, fillPath } from "./checks.ts";
import { addExecution, ExecutionFailed, GatewayUnreachable, McpExecError, Outdated } from "./errors.ts";
import { RequestInvalid, Unavailable, WaitExpired } from "./errors.ts";
import { followEvents, type FollowOptions } from "./events.ts";
import { Operations } from "./operations.ts";
import { OPTION_FIELDS, type RunOptions } from "./options.ts";
import { OpenSession, type SessionOptions } from "./session.ts";
import { now, within } from "./time.ts";
import type { CallOptions } from "./transport.ts";
import type { CommitResult, Event, Execution, ExecutionSummary, Run } from "./types.ts";

const EXECUTION = "/v1/executions/{name}";
const FILE = "/v1/workspaces/{name}/files/{path}";
const DEFAULT_WAIT_SECONDS = 900;
const BEFORE_RUN_SECONDS = 600; // the part of a wait in the queue and for approvals, which a longer run leaves as it is
const MAX_WAIT_SECONDS = 50; // many proxies close a connection that is idle for 60 seconds
const MIN_WAIT_SECONDS = 1;
const FIRST_WAIT_SECONDS = 2; // the response that creates an execution has its name, for errors and cancellation
const ABANDON_SECONDS = 5;
const PAGE_SIZE = 100;
const MAX_READ_BYTES = 64 * 1024 * 1024;
const ANYTHING = { Accept: "*/*" };
const FINAL: readonly string[] = ["Succeeded", "Failed", "TimedOut", "Cancelled"] satisfies Execution["phase"][];

/** Options of the execution, and of the call. */
export interface SubmitOptions extends RunOptions, CallOptions {
  /** Key by which a later request finds the same execution; the client makes one if none is given. */
  idempotencyKey?: string | undefined;
}

export interface WaitOptions extends CallOptions {
  /** Longest wait for the end, in the queue, for approvals and while the code runs. */
  waitSeconds?: number | undefined;
}

type Filters = Omit<NonNullable<Given<"listExecutions">["query"]>, "limit" | "continue" | "namespace">;
/** Filters of a list, and the most items in all. */
export type ListOptions = Filters & CallOptions & { limit?: number };

export interface ReadOptions extends CallOptions {
  /** Most bytes that are read into memory; 64 MiB by default. */
  maxBytes?: number | undefined;
}

export interface FileOptions extends CallOptions {
  /** User whose workspace is meant, if the caller's executions have one. */
  user?: string;
}

/** A write takes place only if the file is as expected; otherwise it throws Outdated. */
export interface WriteOptions extends FileOptions {
  /** `etag` of the workspace's version, or SHA-256 of the file: it must be the current one. */
  ifMatch?: string;
  /** Whether the file must not exist. */
  mustBeNew?: boolean;
  executable?: boolean;
}

/**
 * Client of one gateway: what the API has under the names of its operations, and what takes more than one request.
 *
 * All methods throw subclasses of McpExecError. Requests are repeated if that is safe.
 */
export class Client extends Operations {
  #maxWait = MAX_WAIT_SECONDS;

  /**
   * Run code and return the execution at its end, whatever its outcome.
   *
   * The code starts at most once, also if a response is lost: the request carries an Idempotency-Key. The execution is
   * cancelled if the signal is aborted or `waitSeconds` are over, which throws WaitExpired: by default 900, or 600 more
   * than `timeoutSeconds`.
   */
  async run(code: string, options: SubmitOptions & WaitOptions = {}): Promise<Run> {
    const { waitSeconds: given, idempotencyKey: key = crypto.randomUUID(), signal, ...rest } = options;
    const body = buildBody(code, rest);
    const waitSeconds = given ?? Math.max(DEFAULT_WAIT_SECONDS, (rest.timeoutSeconds ?? 0) + BEFORE_RUN_SECONDS);
    const known: { name?: string } = {};
    try {
      return await this.#waiting(waitSeconds, known, signal, async (signal, deadline) => {
        const created = await this.#create(body, key, Math.min(waitSeconds, FIRST_WAIT_SECONDS), signal);
        known.name = created.name;
        return this.#waitUntil(created.name, deadline, signal, created);
      });
    } catch (error) {
      if (!(error instanceof WaitExpired || signal?.aborted)) throw error;
      const isRequested = await this.#abandon(body, key, known.name);
      const ending = isRequested ? "is requested" : "could not be requested, so it may go on";
      if (error instanceof WaitExpired) error.message += `; its cancellation ${ending}`;
      throw error;
    }
  }

  /** Create an execution and return it at once. It continues when the caller ends. Creates at most one. */
  submit(code: string, { idempotencyKey = crypto.randomUUID(), signal, ...rest }: SubmitOptions = {}): Promise<Run> {
    return this.#create(buildBody(code, rest), idempotencyKey, 0, signal);
  }

  /** Return an execution at its end. Throws WaitExpired; the execution then continues. */
  async wait(name: string, { waitSeconds = DEFAULT_WAIT_SECONDS, signal }: WaitOptions = {}): Promise<Run> {
    try {
      return await this.#waiting(waitSeconds, { name }, signal, (signal, end) => this.#waitUntil(name, end, signal));
    } catch (error) {
      if (error instanceof WaitExpired) error.message += "; it goes on";
      throw error;
    }
  }

  /** Return an execution as it is now. */
  async get(
    name: string,
    { includeCode = false, ...call }: CallOptions & { includeCode?: boolean } = {},
  ): Promise<Run> {
    return toRun(await this.getExecution(name, { query: includeCode ? { include: "code" } : {}, ...call }));
  }

  /** Request the cancellation of an execution and return it; it ends shortly after. */
  async cancel(name: string, call: CallOptions = {}): Promise<Run> {
    return toRun((await this.cancelExecution(name, call)) as Execution);
  }

  /** Yield executions, newest first, at most `limit`, 1000 by default. Pages are requested as they are needed. */
  async *list({ limit = 1000, signal, ...filters }: ListOptions = {}): AsyncGenerator<ExecutionSummary, void> {
    check(limit >= 1, `limit is the most items in all, 1 or more, and not ${limit}`);
    for (let position: string | null = null; limit > 0;) {
      const query = { ...filters, limit: Math.min(limit, PAGE_SIZE), continue: position };
      const page: Answer<"listExecutions"> = await this.listExecutions({ query, signal });
      yield* page.items.slice(0, limit);
      limit -= page.items.length;
      position = page.continue;
      if (!position) return;
    }
  }

  /**
   * Yield an execution's events from its start, or after `lastEventId`, up to its end.
   *
   * A lost connection is opened again after the last event, so that each event comes once.
   */
  stream(name: string, options: FollowOptions = {}): AsyncGenerator<Event, void> {
    return followEvents(this.transport, fillPath(`${EXECUTION}/events`, { name }), name, options);
  }

  /**
   * Return one session, for `await using session = client.session("analysis")`.
   *
   * With options, its first run creates it with these, unless it exists. At the end of the block it stays if it has a
   * name; without one it gets one and is deleted, unless `keep` says otherwise.
   */
  session(name?: string, options: SessionOptions & { keep?: boolean } = {}): OpenSession {
    return new OpenSession(this, name, options);
  }

  /** Run a skill with these arguments, and return the execution at its end, as `run` does. */
  runSkill(
    name: string,
    context: Record<string, unknown> = {},
    { version, ...options }: SubmitOptions & WaitOptions & { version?: number } = {},
  ): Promise<Run> {
    return this.run("", { ...options, context, skillRef: version === undefined ? { name } : { name, version } });
  }

  /** Return the bytes of a workspace's file, of the newest version or of another. */
  async readFile(
    workspace: string,
    path: string,
    { user, version, maxBytes = MAX_READ_BYTES, signal }: ReadOptions & FileOptions & { version?: number } = {},
  ): Promise<Uint8Array> {
    const options = { query: { user, version }, headers: ANYTHING, maxBytes, signal };
    return (await this.send("GET", FILE, { name: workspace, path }, options)).bytes;
  }

  /**
   * Write one file of a workspace: bytes, or text in UTF-8. Creates the workspace if needed.
   *
   * If an answer was lost, the client writes again, and the message of Outdated says that the first attempt may have
   * succeeded.
   */
  async writeFile(
    workspace: string,
    path: string,
    data: Uint8Array | string,
    { user, ifMatch, mustBeNew, executable, signal }: WriteOptions = {},
  ): Promise<CommitResult> {
    const content = typeof data === "string" ? new TextEncoder().encode(data) : data;
    const headers = {
      "Content-Type": "application/octet-stream",
      ...(ifMatch === undefined ? {} : { "If-Match": `"${ifMatch}"` }),
      ...(mustBeNew ? { "If-None-Match": "*" } : {}),
    };
    const options = { query: { user, executable: executable || undefined }, content, headers, signal };
    try {
      return parseJson(await this.send("PUT", FILE, { name: workspace, path }, options));
    } catch (error) {
      if (error instanceof Outdated && error.mayHaveArrived) {
        error.message += "; an earlier attempt was not answered, and may be what exists: read it to see whose it is";
      }
      throw error;
    }
  }

  /** Return the bytes of the artifact with this id. */
  async readArtifact(
    execution: string,
    id: string,
    { maxBytes = MAX_READ_BYTES, signal }: ReadOptions = {},
  ): Promise<Uint8Array> {
    const options = { headers: ANYTHING, maxBytes, signal };
    return (await this.send("GET", `${EXECUTION}/artifacts/{id}`, { name: execution, id }, options)).bytes;
  }

  async #create(body: object, key: string, waitSeconds: number, signal: AbortSignal | undefined): Promise<Run> {
    const headers = { "Idempotency-Key": key };
    // a lost connection must not cancel the execution: the next attempt finds it by its key
    const query = { onDisconnect: "continue" } as const;
    try {
      return await this.#askWaiting(waitSeconds, (wait) => {
        const options = { body, headers, query: { ...query, wait }, waitSeconds: wait, repeatable: true, signal };
        return this.createExecution(options);
      });
    } catch (error) {
      const isOpen = error instanceof GatewayUnreachable || error instanceof Unavailable;
      if (isOpen && error.mayHaveArrived && error.execution === undefined) {
        error.message += `; the code may run: the same call with idempotencyKey ${key} returns its execution`;
      }
      throw error;
    }
  }

  /** Run `act` with a deadline. Throws WaitExpired if it and its last response take too long. */
  async #waiting<T>(
    waitSeconds: number,
    known: { name?: string },
    signal: AbortSignal | undefined,
    act: (signal: AbortSignal, deadline: number) => Promise<T>,
  ): Promise<T> {
    check(waitSeconds >= 0, `waitSeconds is a number of seconds, 0 or more, and not ${waitSeconds}`);
    const seconds = waitSeconds + this.transport.timeoutSeconds;
    const expired = () => {
      const what = known.name === undefined ? "no execution has" : `execution ${known.name} has not`;
      const text = `${this.transport.url}: ${what} ended within ${seconds} seconds`;
      return new WaitExpired(text, { execution: known.name });
    };
    return within(seconds, expired, signal, (signal) => act(signal, now() + waitSeconds));
  }

  /** Return the execution at its end. `known` is its last state, from less than a wait ago. */
  async #waitUntil(name: string, deadline: number, signal: AbortSignal, known?: Run): Promise<Run> {
    let run = known;
    while (!run?.finished) {
      const left = Math.max(deadline - now(), 0);
      if (run && left === 0) {
        const text = `execution ${name} has not ended in time: ${run.phase} ${run.reason}`;
        throw new WaitExpired(text.trimEnd(), { execution: name });
      }
      try {
        run = await this.#askWaiting(
          left,
          (wait) => this.getExecution(name, { query: { wait }, waitSeconds: wait, signal }),
        );
      } catch (error) {
        addExecution(error, name);
        throw error;
      }
    }
    return run;
  }

  /** Send a request with a wait. The gateway may accept less than the client assumes. */
  async #askWaiting(waitSeconds: number, ask: (waitSeconds: number) => Promise<Execution>): Promise<Run> {
    for (;;) {
      const wait = Math.min(waitSeconds, this.#maxWait);
      try {
        return toRun(await ask(wait));
      } catch (error) {
        const isTooLong = error instanceof RequestInvalid && error.errors.map((each) => each.field).join() === "wait";
        if (!isTooLong || wait <= MIN_WAIT_SECONDS) throw error;
        this.#maxWait = Math.max(wait / 2, MIN_WAIT_SECONDS);
      }
    }
  }

  /**
   * Cancel an execution whose caller has given up, as well as that is possible in a few seconds.
   *
   * Without its name, the request is sent again: it has the same key, so the response names the execution. Returns
   * whether the gateway has the cancellation.
   */
  async #abandon(body: object, key: string, name: string | undefined): Promise<boolean> {
    const late = () => new WaitExpired("the cancellation takes too long");
    try {
      await within(ABANDON_SECONDS, late, undefined, async (signal) => {
        await this.cancel(name ?? (await this.#create(body, key, 0, signal)).name, { signal });
      });
      return true;
    } catch (error) {
      if (error instanceof McpExecError) return false;
      throw error;
    }
  }
}

/** Throw ExecutionFailed if an execution has ended without success. */
export function raiseForFailure(run: Run): void {
  if (run.finished && !run.succeeded) throw new ExecutionFailed(run);
}

function toRun(execution: Execution): Run {
  const { output, phase } = execution;
  const { stdout, stderr, result } = { stdout: "", stderr: "", result: null, ...output };
  return { ...execution, stdout, stderr, result, finished: FINAL.includes(phase), succeeded: phase === "Succeeded" };
}

/** Build the body of a request that creates an execution. Throws ClientMisconfigured for an unknown option. */
function buildBody(code: string, options: RunOptions): object {
  const body: Record<string, unknown> = code !== "" || !options.skillRef ? { code } : {};
  for (const [name, value] of Object.entries(options)) {
    const path = Object.hasOwn(OPTION_FIELDS, name) ? OPTION_FIELDS[name as keyof RunOptions] : "";
    const known = Object.keys(OPTION_FIELDS).join(", ");
    check(path !== "", `unknown option ${JSON.stringify(name.slice(0, 60))}; the options are ${known}`);
    const [field = "", inner] = path.split(".");
    if (value === undefined || value === null) continue;
    body[field] = inner === undefined ? value : { ...(body[field] as object | undefined), [inner]: value };
  }
  return body;
}
