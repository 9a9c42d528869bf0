/** A gateway on loopback that answers a client's requests by a script. */
import assert from "node:assert/strict";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Client, type ClientOptions } from "../src/index.ts";

/** One request, as it arrived. */
export interface Received {
  readonly line: string;
  readonly headers: IncomingMessage["headers"];
  readonly body: string;
}

/** What a request gets: JSON with 200, or what the function does with the response. */
export type Step = object | ((response: ServerResponse, request: Received) => void | Promise<void>);

/** Return an answer with a status, JSON or text, and headers. */
export function answer(status: number, body: unknown = undefined, headers: Record<string, string> = {}): Step {
  const text = body === undefined ? "" : typeof body === "string" ? body : JSON.stringify(body);
  return (response) => void response.writeHead(status, headers).end(text);
}

/** Return an answer with problem details. */
export function problem(status: number, kind: string, more: object = {}, headers: Record<string, string> = {}): Step {
  const body = { type: `urn:mcp-exec:problem:${kind}`, title: "", status, detail: "it is wrong", errors: [], ...more };
  return answer(status, body, { "Content-Type": "application/problem+json", ...headers });
}

/** Return an execution as the gateway shows it. */
export function execution(phase = "Succeeded", more: object = {}): object {
  return { name: "e1", namespace: "agents", pool: "default", phase, reason: "", output: null, error: null, ...more };
}

/** Close the connection without an answer. */
export const lost: Step = (response) => void response.socket?.destroy();

/** Never answer. The client has to give up. */
export const silent: Step = () => undefined;

/** Return a stream of these events; with `isLost`, the connection breaks after them. */
export function stream(events: readonly (object | string)[], isLost = false): Step {
  return async (response) => {
    response.writeHead(200, { "Content-Type": "application/x-ndjson" });
    for (const [number, event] of events.entries()) {
      const line = typeof event === "string" ? event : JSON.stringify({ seq: number, at: "", ...event });
      await new Promise((written) => response.write(`${line}\n`, written));
    }
    if (isLost) response.socket?.destroy();
    else response.end();
  };
}

/** What a test has: the client, and what the gateway received. */
export interface Scene {
  readonly client: Client;
  readonly received: readonly Received[];
  readonly lines: readonly string[];
  /** Resolves when a request of this number, from 1, has arrived. */
  arrived(count: number): Promise<void>;
}

/** Run a test with a gateway that answers by a script, which the test must use up. */
export async function playing(
  script: readonly Step[],
  test: (scene: Scene) => Promise<void>,
  options: ClientOptions = {},
): Promise<void> {
  const received: Received[] = [];
  const waiting: { count: number; resolve: () => void }[] = [];
  const steps = [...script];
  const server = createServer(async (request, response) => {
    const parts: Buffer[] = [];
    for await (const part of request) parts.push(part as Buffer);
    const found = {
      line: `${request.method} ${request.url}`,
      headers: request.headers,
      body: Buffer.concat(parts).toString(),
    };
    received.push(found);
    for (const each of waiting) if (received.length >= each.count) each.resolve();
    const step = steps.shift() ?? answer(599, `no step is left for ${found.line}`);
    if (typeof step === "function") await step(response, found);
    else response.writeHead(200, { "Content-Type": "application/json" }).end(JSON.stringify(step));
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const retries = { firstDelaySeconds: 0.001, lastDelaySeconds: 0.002, ...options.retries };
  const arrived = (count: number) =>
    new Promise<void>((resolve) => (received.length >= count ? resolve() : waiting.push({ count, resolve })));
  try {
    const lines = new Proxy(received, {
      get: (list, key) => Reflect.get(list.map((each) => each.line), key) as unknown,
    });
    const client = new Client(url, { apiKey: "k", ...options, retries });
    await test({ client, received, lines: lines as unknown as string[], arrived });
    assert.equal(steps.length, 0, "the test has not used up its script");
  } finally {
    server.closeAllConnections();
    await new Promise((closed) => server.close(closed));
  }
}
