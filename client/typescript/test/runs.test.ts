import assert from "node:assert/strict";
import { test } from "node:test";
import {
  ClientMisconfigured,
  ExecutionFailed,
  GatewayUnreachable,
  raiseForFailure,
  WaitExpired,
} from "../src/index.ts";
import { execution, lost, playing, problem, type Received, silent } from "./scripted.ts";

const OUTPUT = { output: { stdout: "3\n", stderr: "", result: { total: 3 } } };

function waits(received: readonly Received[]): number[] {
  return received.map((each) => Number(new URL(each.line.split(" ")[1] ?? "", "http://x").searchParams.get("wait")));
}

test("code runs with options at their places in the body, and the run has its output in short form", () =>
  playing([execution("Succeeded", OUTPUT)], async ({ client, received }) => {
    const options = {
      context: { n: 3 },
      tools: ["github.*"],
      pool: "large",
      outputBytes: 2048,
      toolCalls: 5,
      user: null,
    };
    const run = await client.run("n", { ...options, timeoutSeconds: 5, ttlSeconds: 60 });
    assert.deepEqual([run.stdout, run.result, run.finished, run.succeeded], ["3\n", { total: 3 }, true, true]);
    assert.deepEqual(JSON.parse(received[0]?.body ?? ""), {
      code: "n",
      context: { n: 3 },
      tools: ["github.*"],
      poolRef: { name: "large" },
      limits: { outputBytes: 2048, toolCalls: 5 },
      timeoutSeconds: 5,
      ttlSecondsAfterFinished: 60,
    });
  }));

test("an unknown option is refused, and the error names those there are", () =>
  playing([], async ({ client }) => {
    const options = { timeout: 5 } as object;
    await assert.rejects(client.run("1", options), (error) =>
      error instanceof ClientMisconfigured && error.message.includes('"timeout"') &&
      error.message.includes("timeoutSeconds"));
  }));

test("a run whose answer was lost is found again by its key and never starts twice", () =>
  playing([lost, execution()], async ({ client, received }) => {
    assert.equal((await client.run("1")).phase, "Succeeded");
    const keys = received.map((each) => each.headers["idempotency-key"]);
    assert.equal(new Set(keys).size, 1);
    assert.match(String(keys[0]), /^[0-9a-f-]{36}$/);
    assert.ok(received.every((each) => each.line.includes("onDisconnect=continue")));
  }));

test("a run is followed until its end", () =>
  playing(
    [execution("Pending"), execution("Running"), execution("Succeeded", OUTPUT)],
    async ({ client, lines, received }) => {
      assert.deepEqual((await client.run("1", { idempotencyKey: "mine" })).result, { total: 3 });
      assert.deepEqual(lines.map((line) => line.split("?")[0]), [
        "POST /v1/executions",
        "GET /v1/executions/e1",
        "GET /v1/executions/e1",
      ]);
      assert.equal(received[0]?.headers["idempotency-key"], "mine");
      assert.ok(waits(received).every((seconds, place) => seconds <= (place ? 50 : 2)));
    },
  ));

test("a gateway that accepts shorter waits gets shorter ones", () => {
  const refused = problem(422, "invalid", { errors: [{ field: "wait", message: "at most 30" }] });
  return playing([execution("Running"), refused, execution()], async ({ client, received }) => {
    await client.run("1");
    assert.deepEqual(waits(received), [2, 50, 25]);
  });
});

test("a run that does not end in time is cancelled", () =>
  playing([execution("Running"), execution("Running")], async ({ client, lines }) => {
    await assert.rejects(client.run("1", { waitSeconds: 0 }), (error) => {
      assert.ok(error instanceof WaitExpired);
      assert.equal(error.execution, "e1");
      assert.match(error.message, /e1 has not ended in time: Running; its cancellation is requested$/);
      return true;
    });
    assert.equal(lines[1], "DELETE /v1/executions/e1");
  }));

test("an aborted run is cancelled, by its key if its name is not known", () =>
  playing([silent, execution("Running"), execution("Running")], async ({ client, arrived, lines, received }) => {
    const controller = new AbortController();
    const running = client.run("1", { signal: controller.signal });
    await arrived(1);
    controller.abort();
    await assert.rejects(running, { name: "AbortError" });
    assert.equal(lines[2], "DELETE /v1/executions/e1");
    assert.equal(received[0]?.headers["idempotency-key"], received[1]?.headers["idempotency-key"]);
  }));

test("an execution whose creation may have arrived is named by its key", () =>
  playing([lost, lost], async ({ client }) => {
    const running = client.run("1", { idempotencyKey: "mine" });
    await assert.rejects(
      running,
      (error) =>
        error instanceof GatewayUnreachable &&
        error.message.includes("the same call with idempotencyKey mine returns its execution"),
    );
  }, { retries: { attempts: 2 } }));

test("a wait whose gateway fails says that the execution goes on", () =>
  playing([lost], async ({ client }) => {
    await assert.rejects(client.wait("e1"), (error) =>
      error instanceof GatewayUnreachable && error.execution === "e1" &&
      error.message.endsWith("execution e1 goes on"));
  }, { retries: { attempts: 1 } }));

test("submit returns at once, and wait the end", () =>
  playing([execution("Pending"), execution("Running"), execution()], async ({ client, received }) => {
    const submitted = await client.submit("1");
    assert.deepEqual([submitted.finished, waits(received)], [false, [0]]);
    assert.equal((await client.wait(submitted.name)).succeeded, true);
  }));

test("a failed run is a value, and an exception if the caller wants one", () => {
  const error = { type: "ZeroDivisionError", message: "division by zero", line: 1 };
  return playing([execution("Failed", { reason: "UserError", error })], async ({ client }) => {
    const run = await client.run("1 / 0");
    assert.deepEqual([run.succeeded, run.error?.line], [false, 1]);
    assert.throws(
      () => raiseForFailure(run),
      (failure) =>
        failure instanceof ExecutionFailed &&
        failure.message === "e1: Failed UserError: ZeroDivisionError: division by zero",
    );
  });
});

test("a skill runs with its arguments as the context, and no code", () =>
  playing([execution()], async ({ client, received }) => {
    await client.runSkill("double", { value: 4 }, { version: 2, tools: ["a.b"] });
    assert.deepEqual(JSON.parse(received[0]?.body ?? ""), {
      context: { value: 4 },
      skillRef: { name: "double", version: 2 },
      tools: ["a.b"],
    });
  }));

test("lists are read page by page up to their limit", () => {
  const page = (first: number, next: string | null) => ({
    items: [{ name: `e${first}` }, { name: `e${first + 1}` }],
    continue: next,
  });
  return playing([page(1, "p2"), page(3, "p3")], async ({ client, lines }) => {
    const names = [];
    for await (const each of client.list({ phase: "Failed", limit: 3 })) names.push(each.name);
    assert.deepEqual(names, ["e1", "e2", "e3"]);
    assert.deepEqual([...lines], [
      "GET /v1/executions?phase=Failed&limit=3",
      "GET /v1/executions?phase=Failed&limit=1&continue=p2",
    ]);
  });
});

test("a session with options is created once, and its runs name it", () =>
  playing([{ name: "s" }, execution(), execution()], async ({ client, lines, received }) => {
    const session = client.session("s", { pool: "large", idleTimeoutSeconds: 60, user: "ann" });
    await session.run("x = 1");
    await session.run("x");
    assert.deepEqual(lines.map((line) => line.split("?")[0]), [
      "POST /v1/sessions",
      "POST /v1/executions",
      "POST /v1/executions",
    ]);
    assert.deepEqual(JSON.parse(received[0]?.body ?? ""), {
      name: "s",
      idleTimeoutSeconds: 60,
      user: "ann",
      poolRef: { name: "large" },
    });
    assert.deepEqual(JSON.parse(received[2]?.body ?? ""), {
      code: "x",
      poolRef: { name: "large" },
      user: "ann",
      session: "s",
    });
  }));

test("runs of a session have its language", () =>
  playing([{ name: "s" }, execution()], async ({ client, received }) => {
    await client.session("s", { language: "typescript" }).run("x");
    assert.deepEqual(JSON.parse(received[0]?.body ?? ""), { name: "s", language: "typescript" });
    assert.deepEqual(JSON.parse(received[1]?.body ?? ""), { code: "x", language: "typescript", session: "s" });
  }));

test("a session that exists already is used", () =>
  playing([problem(409, "conflict"), execution()], async ({ client }) => {
    assert.equal((await client.session("s", { maxQueued: 2 }).run("1")).succeeded, true);
  }));

test("a session without a name is deleted at the end of its block, and one with a name stays", () =>
  playing([problem(404, "not-found")], async ({ client, lines }) => {
    const own = client.session();
    await own[Symbol.asyncDispose]();
    await client.session("kept")[Symbol.asyncDispose]();
    assert.match(own.name, /^s-[0-9a-f]{12}$/);
    assert.deepEqual([...lines], [`DELETE /v1/sessions/${own.name}`]);
  }));
