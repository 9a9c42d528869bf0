import assert from "node:assert/strict";
import { test } from "node:test";
import {
  Client,
  ClientMisconfigured,
  Conflict,
  Forbidden,
  GatewayError,
  GatewayUnreachable,
  NotFound,
  Outdated,
  PoolQueueFull,
  RequestInvalid,
  Unauthenticated,
  Unavailable,
  UnexpectedResponse,
} from "../src/index.ts";
import { answer, lost, playing, problem, silent } from "./scripted.ts";

test("a request carries the key, the namespace and the query, and parts of paths are quoted", () =>
  playing(
    [{ items: [] }, {}],
    async ({ client, received, lines }) => {
      await client.listSkills({ query: { query: "a b", state: null } });
      await client.getWorkspace("a/b?");
      assert.deepEqual([...lines], [
        "GET /v1/skills?query=a+b&namespace=agents",
        "GET /v1/workspaces/a%2Fb%3F?namespace=agents",
      ]);
      assert.equal(received[0]?.headers.authorization, "Bearer k");
    },
    { namespace: "agents" },
  ));

test("a function as the key is called for each request", () => {
  const keys = ["first", "second"];
  return playing(
    [{}, {}],
    async ({ client, received }) => {
      await client.getStats();
      await client.getStats();
      assert.deepEqual(received.map((each) => each.headers.authorization), ["Bearer first", "Bearer second"]);
    },
    { apiKey: () => keys.shift() ?? "" },
  );
});

for (
  const [status, kind, expected] of [
    [401, "unauthenticated", Unauthenticated],
    [403, "forbidden", Forbidden],
    [404, "not-found", NotFound],
    [409, "conflict", Conflict],
    [422, "invalid", RequestInvalid],
    [500, "internal", Unavailable],
  ] as const
) {
  test(`a problem of the kind ${kind} is a ${expected.name} and is not repeated`, () =>
    playing([problem(status, kind, { errors: [{ field: "code", message: "is missing" }] })], async ({ client }) => {
      await assert.rejects(client.getStats(), (error) => {
        assert.ok(error instanceof expected);
        assert.deepEqual([error.name, error.kind, error.status], [expected.name, kind, status]);
        assert.equal(error.errors[0]?.field, "code");
        return true;
      });
    }));
}

test("a response of a proxy is an error with its text", () =>
  playing([answer(400, "<h1>Bad</h1>")], async ({ client }) => {
    await assert.rejects(
      client.getStats(),
      (error) => error instanceof GatewayError && error.kind === "http" && error.message.includes("<h1>Bad</h1>"),
    );
  }));

test("a redirect is an error, because it would carry the key elsewhere", () =>
  playing([answer(307, "", { Location: "https://elsewhere.example/" })], async ({ client }) => {
    await assert.rejects(client.getStats(), (error) => error instanceof GatewayError && error.status === 307);
  }));

test("a lost connection and an absent gateway are retried, and the answer is returned", () =>
  playing(
    [lost, answer(503, "no upstream"), problem(429, "rate-limited"), { namespace: "agents" }],
    async ({ client, lines }) => {
      assert.equal((await client.getStats()).namespace, "agents");
      assert.equal(lines.length, 4);
    },
  ));

test("a request that is never answered well ends after its attempts", () =>
  playing([lost, lost, lost], async ({ client, lines }) => {
    await assert.rejects(client.getStats(), GatewayUnreachable);
    assert.equal(lines.length, 3);
  }, { retries: { attempts: 3 } }));

test("six attempts are the default while nothing has ever answered", () =>
  playing(Array.from({ length: 6 }, () => lost), async ({ client }) => {
    await assert.rejects(client.getStats(), GatewayUnreachable);
  }));

test("a gateway that has answered may be away for more attempts", () =>
  playing(
    [{}, ...Array.from({ length: 9 }, () => answer(502, "bad gateway")), { namespace: "back" }],
    async ({ client }) => {
      await client.getStats();
      assert.equal((await client.getStats()).namespace, "back");
    },
  ));

test("the delay of Retry-After is a minimum, and one beyond the limit ends the attempts", () =>
  playing([problem(429, "queue-full", {}, { "Retry-After": "61" })], async ({ client }) => {
    await assert.rejects(client.getStats(), (error) => error instanceof PoolQueueFull && error.retryAfter === 61);
  }));

test("a request whose repetition would have another effect is not sent again after its answer was lost", () =>
  playing([lost], async ({ client }) => {
    await assert.rejects(client.createSession({ body: { name: "s" } }), GatewayUnreachable);
  }));

test("such a request is sent again if the gateway has refused it unread", () =>
  playing([problem(429, "rate-limited"), { name: "s" }], async ({ client, received }) => {
    assert.equal((await client.createSession({ body: { name: "s" } })).name, "s");
    assert.deepEqual(received.map((each) => each.body), ['{"name":"s"}', '{"name":"s"}']);
  }));

test("an address without a listener is named with the reason, and nothing can have arrived there", async () => {
  let url = "";
  await playing([], async ({ client }) => void (url = client.transport.url));
  const client = new Client(url, { apiKey: "k", retries: { attempts: 2, firstDelaySeconds: 0.001 } });
  await assert.rejects(client.createSession({ body: { name: "s" } }), (error) => {
    assert.ok(error instanceof GatewayUnreachable);
    assert.ok(error.message.startsWith(`POST ${url}/v1/sessions: connect ECONNREFUSED`), error.message);
    assert.equal(error.mayHaveArrived, false);
    return true;
  });
});

test("a response that does not come in time is an error", () =>
  playing([silent], async ({ client }) => {
    await assert.rejects(client.getStats(), (error) =>
      error instanceof GatewayUnreachable && error.message.endsWith("no response within 0.05 seconds"));
  }, { timeoutSeconds: 0.05, retries: { attempts: 1 } }));

test("an aborted call ends with the signal's reason", () =>
  playing([silent], async ({ client, arrived }) => {
    const controller = new AbortController();
    const asking = client.getStats({ signal: controller.signal });
    await arrived(1);
    controller.abort(new Error("the user left"));
    await assert.rejects(asking, /^Error: the user left$/);
  }));

test("a call with an aborted signal sends nothing", () =>
  playing([], async ({ client, lines }) => {
    await assert.rejects(client.getStats({ signal: AbortSignal.abort() }), { name: "AbortError" });
    assert.equal(lines.length, 0);
  }));

test("a response that is larger than any of the gateway's is refused", () =>
  playing([answer(200, "x".repeat(2048))], async ({ client }) => {
    await assert.rejects(client.readArtifact("e1", "a1", { maxBytes: 1024 }), UnexpectedResponse);
  }));

test("a response that is not JSON is refused", () =>
  playing([answer(200, "<html>")], async ({ client }) => {
    await assert.rejects(client.getStats(), (error) =>
      error instanceof UnexpectedResponse && error.message.includes("is this a gateway?"));
  }));

for (
  const [value, kind] of [
    [Number.NaN, "Number"],
    [Number.POSITIVE_INFINITY, "Number"],
    [10n, "BigInt"],
    [new Map(), "Map"],
    [new Date(Number.NaN), "Date"],
    [new Uint8Array(2), "Uint8Array"],
    [() => 1, "Function"],
    [[undefined], "Undefined"],
  ] as const
) {
  test(`a value of type ${kind} is refused, because JSON would change or drop it`, () =>
    playing([], async ({ client }) => {
      await assert.rejects(
        client.run("1", { context: { value } }),
        (error) => error instanceof TypeError && error.message.includes(kind),
      );
    }));
}

test("a body that no gateway accepts is not sent", () =>
  playing([], async ({ client }) => {
    await assert.rejects(client.run("x".repeat(4 * 1024 * 1024)), /at most 3145728 are possible/);
  }));

for (
  const [url, reason] of [
    ["", "needs the gateway's address"],
    ["gateway:8080", "is not the address of a gateway"],
    ["ftp://gateway.example", "is not the address of a gateway"],
    ["https://user:secret@gateway.example", "use an API key instead"],
    ["https://gateway.example/v1/executions", "is given without /v1/executions"],
  ] as const
) {
  test(`the address ${JSON.stringify(url)} is refused`, () => {
    assert.throws(
      () => new Client(url),
      (error) =>
        error instanceof ClientMisconfigured && error.message.includes(reason) && !error.message.includes("secret"),
    );
  });
}

test("a key that a header cannot carry is refused and not repeated", async () => {
  for (const apiKey of ["", "se cret", "secr\u00e9t", "secret\r\nX: y"]) {
    const ask = async () => new Client("http://127.0.0.1:9", { apiKey }).getStats();
    await assert.rejects(ask, (error) => error instanceof ClientMisconfigured && !error.message.includes("secr"));
  }
});

test("a key for another machine over plain HTTP causes a warning, unless it is intended", (context) => {
  const warned = context.mock.method(console, "warn", () => undefined);
  for (const url of ["https://gateway.example", "http://localhost:1", "http://127.0.0.1:1", "http://[::1]:1"]) {
    new Client(url, { apiKey: "k" });
  }
  new Client("http://gateway.example", { apiKey: "k", plainHttp: true });
  assert.equal(warned.mock.callCount(), 0);
  new Client("http://gateway.example", { apiKey: "k" });
  assert.equal(warned.mock.callCount(), 1);
});

test("names that would be another path are not found", () =>
  playing([], async ({ client }) => {
    for (const name of ["", ".", "..", "\ud800"]) await assert.rejects(client.getWorkspace(name), NotFound);
    await assert.rejects(client.readFile("w", "a//b"), NotFound);
  }));

test("files are read and written as bytes, under conditions", () =>
  playing([answer(200, "h\u00e9"), { version: 2 }, { version: 3 }], async ({ client, received, lines }) => {
    assert.equal(new TextDecoder().decode(await client.readFile("w", "a/b c.txt", { version: 1 })), "h\u00e9");
    await client.writeFile("w", "x", "h\u00e9", { ifMatch: "abc-1", executable: true, user: "ann" });
    await client.writeFile("w", "x", new Uint8Array([104]), { mustBeNew: true });
    assert.deepEqual([...lines], [
      "GET /v1/workspaces/w/files/a/b%20c.txt?version=1",
      "PUT /v1/workspaces/w/files/x?user=ann&executable=true",
      "PUT /v1/workspaces/w/files/x",
    ]);
    assert.deepEqual(received.map((each) => each.body), ["", "h\u00e9", "h"]);
    assert.deepEqual([received[1]?.headers["if-match"], received[2]?.headers["if-none-match"]], ['"abc-1"', "*"]);
  }));

test("a write that may have succeeded unseen says so if its repetition is refused", () =>
  playing([lost, problem(412, "outdated"), problem(412, "outdated")], async ({ client }) => {
    const write = () => client.writeFile("w", "lock", "mine", { mustBeNew: true });
    await assert.rejects(
      write,
      (error) => error instanceof Outdated && error.message.includes("an earlier attempt was not answered"),
    );
    await assert.rejects(write, (error) => error instanceof Outdated && !error.message.includes("an earlier attempt"));
  }));
