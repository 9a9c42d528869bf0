/** An execution's events up to the end, also if connections are lost in between. */
import { addExecution, GatewayUnreachable, UnexpectedResponse } from "./errors.ts";
import { within } from "./time.ts";
import { Attempts, type CallOptions, readParts, type Transport } from "./transport.ts";
import type { Event } from "./types.ts";

const KEEP_ALIVE_SECONDS = 15; // the gateway sends something at least this often
const MAX_LINE_BYTES = 8 * 1024 * 1024; // more than an event with the largest result, if every byte of it is escaped
const MAX_EVENTS = 1_000_000; // more than the gateway's limit of a stream's sequence numbers

export interface FollowOptions extends CallOptions {
  /** Position after which events are sent: the `id` of the last event received. */
  lastEventId?: string | undefined;
}

/**
 * Yield the events of an execution up to the end. A lost connection is opened again after the last event.
 *
 * Throws GatewayError, GatewayUnreachable and UnexpectedResponse, which name the execution.
 */
export async function* followEvents(
  transport: Transport,
  path: string,
  execution: string,
  { lastEventId, signal }: FollowOptions,
): AsyncGenerator<Event, void> {
  const attempts = new Attempts(transport);
  let position = lastEventId;
  let left = MAX_EVENTS;
  for (;;) {
    try {
      for await (const event of readConnection(transport, path, position, signal)) {
        if (event === undefined) return;
        attempts.reset();
        position = event.id;
        if (--left === 0) throw new UnexpectedResponse(`GET ${transport.url}${path}: more than ${MAX_EVENTS} events`);
        yield event;
        if (event.type === "end") return;
      }
    } catch (error) {
      addExecution(error, execution);
      await attempts.pause(error, { signal });
    }
  }
}

/** Yield the events of one connection, or undefined if none follow. Throws GatewayUnreachable if it ends too early. */
async function* readConnection(
  transport: Transport,
  path: string,
  position: string | undefined,
  signal: AbortSignal | undefined,
): AsyncGenerator<Event | undefined, void> {
  const address = `GET ${transport.url}${path}`;
  const seconds = KEEP_ALIVE_SECONDS + transport.timeoutSeconds;
  const late = () => new GatewayUnreachable(`${address}: no data for ${seconds} seconds`);
  const headers = { Accept: "application/x-ndjson", ...(position === undefined ? {} : { "Last-Event-ID": position }) };
  const response = await within(seconds, late, signal, (signal) => transport.open("GET", path, { headers, signal }));
  if (response.status === 204) yield undefined;
  const parts = readParts(response, address, (read) => within(seconds, late, signal, read));
  for await (const line of splitLines(parts, address)) {
    if (line.trim() !== "") yield parseEvent(line, address);
  }
  throw new GatewayUnreachable(`${address}: the stream ended before the execution's end`);
}

/** Yield complete lines; an incomplete last line is dropped, because the stream will be resumed before it. */
async function* splitLines(parts: AsyncIterable<Uint8Array>, address: string): AsyncGenerator<string, void> {
  const decoder = new TextDecoder();
  let rest: string[] = [];
  let size = 0;
  for await (const part of parts) {
    const [first = "", ...others] = decoder.decode(part, { stream: true }).split("\n");
    rest.push(first);
    size += part.byteLength;
    for (const next of others) {
      yield rest.join("");
      rest = [next];
      size = next.length;
    }
    if (size > MAX_LINE_BYTES) {
      throw new UnexpectedResponse(`${address}: an event has more than ${MAX_LINE_BYTES} bytes`);
    }
  }
}

function parseEvent(line: string, address: string): Event {
  try {
    const found = JSON.parse(line) as Event;
    // the position is sent back in a header
    if (/^[!-~]{1,64}$/.test(found.id) && typeof found.type === "string") return found;
  } catch {
    // not JSON, or no object
  }
  throw new UnexpectedResponse(`${address}: a line of the stream is not an event`);
}
