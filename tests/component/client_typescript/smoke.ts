import assert from "node:assert/strict";
import {
  Client,
  Conflict,
  Forbidden,
  NotFound,
  Outdated,
  RequestInvalid,
  Unauthenticated,
  WaitExpired,
} from "mcp-exec-client";

const client = new Client();
const done = await client.run("print(n)\nn * 2", { context: { n: 21 }, labels: { report: "weekly" } });
assert.deepEqual([done.phase, done.stdout, done.result, done.labels.report], ["Succeeded", "21\n", 42, "weekly"]);
assert.equal((await client.get(done.name, { includeCode: true })).code, "print(n)\nn * 2");

const again = await client.run("1", { idempotencyKey: "k1" });
assert.equal((await client.run("1", { idempotencyKey: "k1" })).name, again.name);
await assert.rejects(client.run("2", { idempotencyKey: "k1" }), Conflict);

const failed = await client.run("1 / 0");
assert.deepEqual([failed.reason, failed.error?.type, failed.error?.line], ["UserError", "ZeroDivisionError", 1]);

const types = [];
for await (const event of client.stream(done.name)) types.push(event.type);
assert.deepEqual([types.at(0), types.at(-1)], ["status", "end"]);
for await (const event of client.stream(done.name, { lastEventId: undefined })) {
  if (event.type === "result") assert.equal(event.value, 42);
}

await assert.rejects(client.run("1", { pool: "nowhere" }), (error) => {
  assert.ok(error instanceof RequestInvalid);
  assert.deepEqual(error.errors.map((each) => each.field), ["poolRef.name"]);
  return true;
});
await assert.rejects(client.get("nothing"), NotFound);
await assert.rejects(new Client(undefined, { apiKey: "wrong" }).getStats(), Unauthenticated);

const waiting = await client.submit("wait");
assert.equal(waiting.finished, false);
await assert.rejects(client.wait(waiting.name, { waitSeconds: 0.05 }), WaitExpired);
await client.cancel(waiting.name);
const names = [];
for await (const each of client.list({ limit: 3 })) names.push(each.name);
assert.ok(names.length <= 3);

await client.createSession({ body: { name: "s", idleTimeoutSeconds: 60 } });
assert.equal((await client.getSession("s")).idleTimeoutSeconds, 60);
await assert.rejects(client.createSession({ body: { name: "s" } }), Conflict);
assert.equal((await client.session("s", { idleTimeoutSeconds: 60 }).run("1")).succeeded, true);
await client.deleteSession("s");

const code = "def run(n: int):\n    return 2 * n";
const draft = await client.saveSkill({ body: { name: "double", description: "Double it.", code } });
assert.equal((await client.listSkills({ query: { query: "double" } })).items[0]?.name, "double");
assert.equal((await client.getSkill("double", draft.version)).code?.includes("2 * n"), true);
await client.deleteSkill("double", draft.version);

const stats = await client.getStats();
assert.deepEqual(stats.pools.map((each) => each.name), ["default", "long"]);
assert.equal((await client.getVersion()).version.split(".").length, 3);
const deciding = client.decideApproval(done.name, "none", { body: { decision: "Approve" } });
await assert.rejects(deciding, Forbidden, "the key is no approver's");
await client.writeFile("sales", "in/a b.txt", "rows");
assert.equal(new TextDecoder().decode(await client.readFile("sales", "in/a b.txt")), "rows");
await assert.rejects(client.writeFile("sales", "in/a b.txt", "others", { mustBeNew: true }), Outdated);
assert.deepEqual((await client.listFiles("sales")).items.map((each) => each.path), ["in/a b.txt"]);
await client.deleteFile("sales", "in/a b.txt");
console.log("done");
