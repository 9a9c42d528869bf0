/** Calls to the broker over HTTP. An answer is lines of JSON: events, then the result or the error that ends it. */

import http from "node:http";
import type { Message, ToolAccess } from "./protocol.ts";

/** Maximum size of a response, events included. */
const MAX_RESPONSE_BYTES = 64 * 1024 * 1024;
const MAX_EVENTS = 100;
const MAX_PROBLEM_BYTES = 4096;
/** Maximum number of concurrent calls. Further calls wait. */
const MAX_CALLS = 10;
const CONNECT_MILLISECONDS = 5000;
/** Maximum idle time of a reused connection. The broker may be about to close a connection that is idle longer. */
const IDLE_MILLISECONDS = 4000;
const LONG_INTEGER = /\d{16}/;
const INTEGER = /^-?\d+$/;

/** The connection failed, so nothing was sent. */
export class BrokerUnreachable extends Error {}

/** The connection closed, or the response was invalid. */
export class BrokerLost extends Error {}

/** The broker returned another status than 200. */
export class BrokerRefused extends Error {
  readonly status: number;

  constructor(status: number, text: string) {
    super(text);
    this.status = status;
  }
}

/** The last line of a response, and its size. */
export interface Answer {
  message: Message;
  size: number;
}

/** Sends calls. */
export class Broker {
  readonly #url: URL;
  readonly #token: string;
  readonly #agent = new http.Agent({ keepAlive: true, maxSockets: MAX_CALLS, timeout: IDLE_MILLISECONDS });
  readonly #open = new Set<http.ClientRequest>();
  #running = 0;
  readonly #waiting: (() => void)[] = [];

  constructor(access: ToolAccess) {
    this.#url = new URL("/v1/calls", access.url);
    this.#token = access.token;
  }

  /** Send one call and return the last line of its response. Other lines go to `onEvent`. */
  async call(body: Uint8Array, onEvent: (event: Message) => void): Promise<Answer> {
    if (this.#running >= MAX_CALLS) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    this.#running += 1;
    try {
      return await this.#send(body, onEvent);
    } finally {
      this.#running -= 1;
      this.#waiting.shift()?.();
    }
  }

  /** Cancel all calls at the broker, and close its connections. */
  close(): void {
    for (const request of this.#open) request.destroy();
    this.#agent.destroy();
  }

  #send(body: Uint8Array, onEvent: (event: Message) => void): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const headers = {
        authorization: `Bearer ${this.#token}`,
        "content-type": "application/json",
        "content-length": String(body.length),
      };
      const request = http.request(this.#url, { method: "POST", headers, agent: this.#agent });
      this.#open.add(request);
      let isSent = false;
      const timer = setTimeout(() => request.destroy(new Error("no answer within 5 s")), CONNECT_MILLISECONDS);
      const connected = () => {
        isSent = true;
        clearTimeout(timer);
      };
      request.on("socket", (socket) => (socket.connecting ? socket.once("connect", connected) : connected()));
      request.on("error", (error: Error) => {
        reject(isSent ? new BrokerLost("the connection was closed") : new BrokerUnreachable(error.message));
      });
      let hasResponse = false;
      request.on("close", () => {
        clearTimeout(timer);
        this.#open.delete(request);
        // The reader of the response sees its end, which may come later.
        if (!hasResponse) reject(new BrokerLost("the connection was closed"));
      });
      request.on("response", (response) => {
        hasResponse = true;
        connected();
        new ResponseReader(response.statusCode ?? 0, onEvent).read(response).then(resolve, (error) => {
          reject(error);
          request.destroy();
        });
      });
      request.end(body);
    });
  }
}

class ResponseReader {
  readonly #status: number;
  readonly #onEvent: (event: Message) => void;
  readonly #decoder = new TextDecoder();
  #line: Uint8Array[] = [];
  #size = 0;
  #events = 0;
  #final: Answer | null = null;

  constructor(status: number, onEvent: (event: Message) => void) {
    this.#status = status;
    this.#onEvent = onEvent;
  }

  async read(response: AsyncIterable<Uint8Array>): Promise<Answer> {
    try {
      for await (const data of response) this.#add(data);
    } catch (error) {
      if (error instanceof BrokerLost || error instanceof BrokerRefused) throw error;
      throw new BrokerLost("the connection was closed");
    }
    if (this.#status !== 200) throw this.#refuse();
    this.#handleLine();
    if (this.#final === null) throw new BrokerLost("the response ended without a result");
    return this.#final;
  }

  #add(data: Uint8Array): void {
    this.#size += data.length;
    if (this.#status !== 200) {
      this.#line.push(data);
      if (this.#size > MAX_PROBLEM_BYTES) throw this.#refuse();
      return;
    }
    if (this.#size > MAX_RESPONSE_BYTES) throw new BrokerLost("the response is too long");
    let start = 0;
    for (let end = data.indexOf(10); end >= 0; end = data.indexOf(10, start)) {
      this.#line.push(data.subarray(start, end));
      this.#handleLine();
      start = end + 1;
    }
    this.#line.push(data.subarray(start));
  }

  #handleLine(): void {
    const size = this.#line.reduce((sum, part) => sum + part.length, 0);
    const text = this.#join();
    if (text === "") return;
    let message: unknown;
    try {
      message = parseExactly(text);
    } catch {
      throw new BrokerLost("the response is not JSON");
    }
    if (typeof message !== "object" || message === null || Array.isArray(message)) {
      throw new BrokerLost("the response is not a JSON object");
    }
    const { type } = message as Message;
    if (type === "result" || type === "error") {
      this.#final = { message: message as Message, size };
    } else if ((this.#events += 1) <= MAX_EVENTS) {
      this.#onEvent(message as Message);
    }
  }

  #join(): string {
    const parts = this.#line;
    this.#line = [];
    return parts.map((part, index) => this.#decoder.decode(part, { stream: index < parts.length - 1 })).join("");
  }

  #refuse(): BrokerRefused {
    return new BrokerRefused(this.#status, parseProblem(this.#join().slice(0, MAX_PROBLEM_BYTES).trim()));
  }
}

/** Parse JSON. Integers that a number would round are BigInts. */
function parseExactly(text: string): unknown {
  if (!LONG_INTEGER.test(text)) return JSON.parse(text);
  type Revive = (key: string, value: unknown, context: { source?: string }) => unknown;
  const revive: Revive = (_, value, { source }) => {
    const isRounded = typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value);
    return isRounded && source !== undefined && INTEGER.test(source) ? BigInt(source) : value;
  };
  return JSON.parse(text, revive as (key: string, value: unknown) => unknown);
}

/** Return the message of an error response: the detail of a problem in JSON, or its text. */
function parseProblem(text: string): string {
  let problem: unknown;
  try {
    problem = JSON.parse(text);
  } catch {
    return text;
  }
  if (typeof problem === "object" && problem !== null) {
    for (const name of ["detail", "message", "error", "title"]) {
      const found = (problem as Message)[name];
      if (typeof found === "string") return found;
    }
  }
  return text;
}
