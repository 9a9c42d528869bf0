import assert from "node:assert/strict";
import { test } from "node:test";
import { type Client, type Event, GatewayUnreachable, NotFound, UnexpectedResponse } from "../src/index.ts";
import { answer, lost, playing, problem, stream } from "./scripted.ts";

const RUNNING = { id: "1", type: "status", phase: "Running" };
const TEXT = { id: "2", type: "stdout", text: "h\u00e9llo\n" };
const END = { id: "3", type: "end", phase: "Succeeded", reason: "" };

async function collect(client: Client, lastEventId?: string): Promise<string[]> {
  const found = [];
  for await (const event of client.stream("e1", { lastEventId })) {
    found.push(event.type === "stdout" ? event.text : event.type);
  }
  return found;
}

test("events come in their order up to the end", () =>
  playing([stream([RUNNING, "", TEXT, END])], async ({ client, received }) => {
    assert.deepEqual(await collect(client), ["status", "h\u00e9llo\n", "end"]);
    assert.equal(received[0]?.headers.accept, "application/x-ndjson");
  }));

test("a lost connection is opened again after the last event, so that each event comes once", () =>
  playing([stream([RUNNING, TEXT], true), lost, stream([END])], async ({ client, received }) => {
    assert.deepEqual(await collect(client), ["status", "h\u00e9llo\n", "end"]);
    assert.deepEqual(received.map((each) => each.headers["last-event-id"]), [undefined, "2", "2"]);
  }));

test("connections that are lost after an event do not use up the attempts", () => {
  const script = [stream([RUNNING], true), stream([TEXT], true), stream([END])];
  return playing(script, async ({ client }) => {
    assert.deepEqual(await collect(client), ["status", "h\u00e9llo\n", "end"]);
  }, { retries: { attempts: 2 } });
});

test("a stream goes on after a position that another process kept, and has nothing after the end", () =>
  playing([stream([END]), answer(204)], async ({ client, received }) => {
    assert.deepEqual(await collect(client, "2"), ["end"]);
    assert.deepEqual(await collect(client, "3"), []);
    assert.equal(received[0]?.headers["last-event-id"], "2");
  }));

test("a stream that ends before the execution does is an error that names it, after the attempts", () =>
  playing([stream([]), stream([])], async ({ client }) => {
    await assert.rejects(
      collect(client),
      (error) =>
        error instanceof GatewayUnreachable && error.execution === "e1" &&
        error.message.endsWith("execution e1 goes on"),
    );
  }, { retries: { attempts: 2 } }));

test("an execution that does not exist is an error", () =>
  playing([problem(404, "not-found")], async ({ client }) => {
    await assert.rejects(collect(client), NotFound);
  }));

for (
  const line of [
    "no JSON",
    "[]",
    "null",
    '{"id": "a b", "type": "x"}',
    '{"id": "1"}',
    '{"id": "1\\r\\nX: y", "type": "x"}',
  ]
) {
  test(`the line ${line} of a stream is refused`, () =>
    playing([stream([line])], async ({ client }) => {
      await assert.rejects(collect(client), UnexpectedResponse);
    }));
}

test("an event that is larger than any of the gateway's is refused", () =>
  playing([stream(["x".repeat(9 * 1024 * 1024)])], async ({ client }) => {
    await assert.rejects(collect(client), /has more than 8388608 bytes/);
  }));

test("events of types that only a newer gateway has are passed on", () =>
  playing([stream([{ id: "1", type: "new" }, END])], async ({ client }) => {
    assert.deepEqual(await collect(client), ["new", "end"]);
  }));

test("a caller that leaves the stream closes the connection", () => {
  let closed: Promise<void> | undefined;
  const endless = stream([RUNNING]);
  return playing(
    [
      async (response, request) => {
        closed = new Promise((resolve) => response.on("close", resolve));
        response.end = () => response; // the gateway has more to send
        if (typeof endless === "function") await endless(response, request);
      },
    ],
    async ({ client }) => {
      for await (const event of client.stream("e1")) if (event.type === "status") break;
      await closed;
    },
  );
});

test("an aborted stream ends with the signal's reason", () =>
  playing(
    [(response) => void response.writeHead(200).write(`${JSON.stringify({ ...RUNNING, seq: 0, at: "" })}\n`)],
    async ({ client }) => {
      const controller = new AbortController();
      const seen: Event["type"][] = [];
      const following = (async () => {
        for await (const event of client.stream("e1", { signal: controller.signal })) {
          seen.push(event.type);
          controller.abort();
        }
      })();
      await assert.rejects(following, { name: "AbortError" });
      assert.deepEqual(seen, ["status"]);
    },
  ));
