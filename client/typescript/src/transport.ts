/** HTTP to the gateway: one bounded response, or an error of the client, for each request; retries if they are safe. */
import { check, encodeJson, readAddress, readEnvironment, warnOfPlainHttp } from "./checks.ts";
import {
  findErrorClass,
  GatewayError,
  GatewayUnreachable,
  McpExecError,
  OTHER_KIND,
  UnexpectedResponse,
} from "./errors.ts";
import { now, sleep, within } from "./time.ts";
import type { FieldError } from "./types.ts";

/** Bounds of the retries of one request. All times are in seconds. */
export interface RetryPolicy {
  /**
   * Most attempts, including the first; 1 means no retry. By default 6; attempts while a gateway is away that has
   * answered this client before do not count, and only `maxDelaySeconds` bounds them.
   */
  attempts?: number | undefined;
  /** Most seconds of delays, and longest absence of a gateway that has answered before; 60 by default. */
  maxDelaySeconds?: number;
  firstDelaySeconds?: number;
  lastDelaySeconds?: number;
}

export interface ClientOptions {
  /** API key or token; the default is $MCP_EXEC_API_KEY. A function is called for each request: tokens can change. */
  apiKey?: string | (() => string | Promise<string>) | undefined;
  /** Namespace of all requests; needed only by callers that may use several. */
  namespace?: string | undefined;
  /** Time for a response, in addition to the wait that the request asks for; 30 by default. */
  timeoutSeconds?: number;
  retries?: RetryPolicy;
  /** Whether the key may be sent over plain HTTP to another machine, which otherwise causes a warning. */
  plainHttp?: boolean;
  /** Function that sends requests in place of `fetch`, for example through a proxy or with a private authority. */
  fetch?: typeof fetch;
}

/** What every method accepts in addition to its own options. */
export interface CallOptions {
  /** Ends the call with the signal's reason. */
  signal?: AbortSignal | undefined;
}

export interface SendOptions extends CallOptions {
  query?: Readonly<Record<string, unknown>> | undefined;
  /** Value that is sent as JSON. */
  body?: unknown;
  /** Bytes that are sent as they are. */
  content?: Uint8Array | undefined;
  headers?: Readonly<Record<string, string>>;
  /** Wait that the request asks for. */
  waitSeconds?: number;
  /** Whether the request may be sent again although the gateway may have acted on it. */
  repeatable?: boolean;
  /** Most bytes of the response. */
  maxBytes?: number | undefined;
}

/** A complete response. */
export interface Reply {
  readonly status: number;
  readonly bytes: Uint8Array;
  readonly address: string;
}

const MAX_RESPONSE_BYTES = 32 * 1024 * 1024; // more than the largest response: the schemas of 1000 tools
const MAX_PROBLEM_BYTES = 1024 * 1024;
const MAX_DETAIL = 2000;
const MAX_RETRY_AFTER = 3600;
const ATTEMPTS = 6;
const PROBLEM_PREFIX = "urn:mcp-exec:problem:";
const KEY_REFUSED = "the key is missing, wrong or removed; pass another one as apiKey or in $MCP_EXEC_API_KEY";
/** Statuses of proxies that do not reach the gateway. */
const AWAY: readonly number[] = [502, 503, 504];
/** Codes of failures before the first byte of the request left, in runtimes that have codes. */
const NOT_SENT: readonly unknown[] = ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "UND_ERR_CONNECT_TIMEOUT"];

/** Requests to one gateway. */
export class Transport {
  readonly url: string;
  readonly timeoutSeconds: number;
  readonly retries: Required<Omit<RetryPolicy, "attempts">> & RetryPolicy;
  /** Whether the gateway has sent a response, so that failures to reach it are an absence and no wrong address. */
  hasAnswered = false;
  readonly #namespace: string | undefined;
  readonly #fetch: typeof fetch;
  readonly #readKey: () => string | undefined | Promise<string>;

  constructor(url: string | undefined, options: ClientOptions) {
    this.url = readAddress(url);
    const key = options.apiKey ?? readEnvironment("MCP_EXEC_API_KEY");
    check(key !== "", "apiKey is empty; without it, $MCP_EXEC_API_KEY is used");
    if (key !== undefined && !options.plainHttp) warnOfPlainHttp(this.url);
    this.#readKey = typeof key === "function" ? key : () => key;
    this.timeoutSeconds = options.timeoutSeconds ?? 30;
    check(this.timeoutSeconds > 0, `timeoutSeconds is a number above 0, and not ${this.timeoutSeconds}`);
    this.retries = { maxDelaySeconds: 60, firstDelaySeconds: 0.2, lastDelaySeconds: 10, ...options.retries };
    this.#namespace = options.namespace;
    this.#fetch = options.fetch ?? ((...request) => fetch(...request));
  }

  /**
   * Send a request until there is a response without an error, and return it.
   *
   * A request that is not `repeatable` is sent again only if the gateway cannot have acted on it. Throws GatewayError,
   * GatewayUnreachable and UnexpectedResponse.
   */
  async send(method: string, path: string, options: SendOptions = {}): Promise<Reply> {
    const address = `${method} ${this.url}${path}`;
    const content = options.body === undefined ? options.content : encodeJson(options.body);
    const seconds = this.timeoutSeconds + (options.waitSeconds ?? 0);
    const late = () => new GatewayUnreachable(`${address}: no response within ${seconds} seconds`);
    const attempts = new Attempts(this);
    for (;;) {
      try {
        return await within(seconds, late, options.signal, async (signal) => {
          const response = await this.open(method, path, { ...options, content, signal });
          const bytes = await readBounded(response, options.maxBytes ?? MAX_RESPONSE_BYTES, address);
          return { status: response.status, bytes, address };
        });
      } catch (error) {
        await attempts.pause(error, options);
      }
    }
  }

  /** Send a request once and return its response, whose body is not read. Throws an error for 3xx, 4xx and 5xx. */
  async open(method: string, path: string, { query, content, headers, signal }: SendOptions): Promise<Response> {
    const address = `${method} ${this.url}${path}`;
    const url = new URL(this.url + path);
    for (const [name, value] of Object.entries({ ...query, namespace: this.#namespace })) {
      if (value !== undefined && value !== null) url.searchParams.set(name, String(value));
    }
    const sent = new Headers({ Accept: "application/json", ...headers });
    if (content !== undefined && !sent.has("Content-Type")) sent.set("Content-Type", "application/json");
    const key = await this.#readKey();
    check(/^[!-~]+$/.test(key ?? "-"), "the API key has a character that is not printable ASCII, or a space");
    if (key !== undefined) sent.set("Authorization", `Bearer ${key}`);
    const body = content as BodyInit | undefined;
    const request = { method, headers: sent, redirect: "manual", signal: signal ?? null, body: body ?? null } as const;
    const response = await reaching(address, () => this.#fetch(url, request));
    const problem = response.ok ? undefined : await readProblem(response, address);
    this.hasAnswered ||= problem?.kind !== OTHER_KIND;
    if (problem) throw problem;
    return response;
  }
}

/** Attempts to make one request, with the delays between them. */
export class Attempts {
  readonly #transport: Transport;
  #failures = 0;
  /** Failures of a gateway that is away. */
  #uncounted = 0;
  #waited = 0;
  #since = 0;
  #mayHaveArrived = false;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Begin to count again, because the gateway has sent something. */
  reset(): void {
    this.#failures = this.#uncounted = this.#waited = 0;
  }

  /** Wait for the next attempt. Throws the error if the request is not to be sent again. */
  async pause(error: unknown, { repeatable = true, signal }: SendOptions): Promise<void> {
    if (!(error instanceof GatewayError || error instanceof GatewayUnreachable)) throw error;
    if (this.#failures === 0) this.#since = now();
    this.#failures += 1;
    const isRefused = error instanceof GatewayError && error.status < 500;
    this.#mayHaveArrived ||= !isRefused && !isNotSent(error);
    const { attempts, maxDelaySeconds, firstDelaySeconds, lastDelaySeconds } = this.#transport.retries;
    const spent = this.#measure(error);
    const backoff = Math.min(firstDelaySeconds * 2 ** (this.#failures - 1), lastDelaySeconds);
    const retryAfter = error instanceof GatewayError ? (error.retryAfter ?? 0) : 0;
    const delay = Math.max(backoff / 2, retryAfter) + (backoff / 2) * Math.random();
    const isOver = this.#failures >= (attempts ?? ATTEMPTS + this.#uncounted) || spent + delay > maxDelaySeconds;
    if (isOver || !canRetry(error, repeatable)) {
      error.mayHaveArrived = this.#mayHaveArrived;
      throw error;
    }
    await sleep(delay, signal);
    this.#waited += delay;
  }

  /** Return the seconds that count against the limit: while the gateway is away, attempts themselves count, too. */
  #measure(error: GatewayError | GatewayUnreachable): number {
    const isAway = error instanceof GatewayUnreachable || (error.kind === OTHER_KIND && AWAY.includes(error.status));
    if (!(this.#transport.hasAnswered && isAway)) return this.#waited;
    this.#uncounted += 1;
    return Math.max(this.#waited, now() - this.#since);
  }
}

/** Return whether the same request may have another outcome, and is safe to send again. */
function canRetry(error: GatewayError | GatewayUnreachable, repeatable: boolean): boolean {
  if (error instanceof GatewayUnreachable) return repeatable || isNotSent(error);
  return error.status === 429 || (repeatable && AWAY.includes(error.status));
}

function isNotSent(error: unknown): boolean {
  const { cause } = error as { cause?: { code?: unknown } };
  return cause instanceof Error && (NOT_SENT.includes("code" in cause && cause.code) || isNotSent(cause));
}

/** Run a part of a request. A failure of the connection becomes GatewayUnreachable. */
async function reaching<T>(address: string, act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (error) {
    if (error instanceof McpExecError) throw error;
    const { message, cause } = error as Error;
    const inner = cause as { message?: string; code?: string } | undefined;
    throw new GatewayUnreachable(`${address}: ${inner?.message || inner?.code || message}`, { cause: error });
  }
}

/** Return a response's body. Throws UnexpectedResponse if it has more than `limit` bytes. */
async function readBounded(response: Response, limit: number, address: string): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  let size = 0;
  for await (const part of readParts(response, address)) {
    size += part.byteLength;
    if (size > limit) throw new UnexpectedResponse(`${address}: the response has more than ${limit} bytes`);
    parts.push(part);
  }
  return new Uint8Array(await new Blob(parts as BlobPart[]).arrayBuffer());
}

/** Yield the parts of a response's body as they arrive. The connection is closed if the caller stops. */
export async function* readParts(
  response: Response,
  address: string,
  limit = <T>(act: () => Promise<T>): Promise<T> => act(),
): AsyncGenerator<Uint8Array, void> {
  const reader = response.body?.getReader();
  try {
    while (reader !== undefined) {
      const { done, value } = await limit(() => reaching(address, () => reader.read()));
      if (done) return;
      yield value;
    }
  } finally {
    await reader?.cancel().catch(() => undefined); // it has failed already
  }
}

/** Return the error that a response reports, also if it is from a proxy in front of the gateway. */
async function readProblem(response: Response, address: string): Promise<GatewayError> {
  const text = new TextDecoder().decode(await readBounded(response, MAX_PROBLEM_BYTES, address));
  const { status, statusText, headers } = response;
  const { type, detail, errors, execution } = parseProblem(text);
  const isOwn = typeof type === "string" && type.startsWith(PROBLEM_PREFIX);
  const kind = isOwn ? type.slice(PROBLEM_PREFIX.length, 200) : OTHER_KIND;
  const shown = typeof detail === "string" ? detail : `${address}: ${text.trim() || statusText || "no text"}`;
  const after = headers.get("Retry-After") ?? "";
  return new (findErrorClass(kind, status))({
    kind,
    status,
    detail: kind === "unauthenticated" ? KEY_REFUSED : shown.slice(0, MAX_DETAIL),
    errors: Array.isArray(errors) ? (errors.slice(0, 1000) as FieldError[]) : [],
    execution: typeof execution === "string" ? execution.slice(0, 253) : undefined,
    retryAfter: /^[0-9]{1,9}$/.test(after) ? Math.min(Number(after), MAX_RETRY_AFTER) : undefined,
  });
}

function parseProblem(text: string): Record<string, unknown> {
  try {
    return (JSON.parse(text) ?? {}) as Record<string, unknown>;
  } catch {
    return {};
  }
}
