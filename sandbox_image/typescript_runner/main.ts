/**
 * Entry of the TypeScript runner, with the control channel as descriptor 3.
 *
 * The launcher (mcp_exec_sandbox/typescript.py) has set the limits and the filter of system calls. Here, everything that
 * does not need the code comes first; then the runner gives up its rights and waits for its job.
 */

import process from "node:process";
import { Channel } from "./channel.ts";
import * as client from "./client.ts";
import { Engine } from "./engine.ts";
import { Hooks } from "./hooks.ts";
import { JobRunner } from "./job.ts";
import { Loader } from "./loader.ts";
import { Network } from "./network.ts";
import type { Job } from "./protocol.ts";
import { seal } from "./seal.ts";
import * as skills from "./skills.ts";
import { Stacks } from "./stack.ts";
import { StandardStreams } from "./streams.ts";
import { Timers } from "./timers.ts";
import * as toolDiscovery from "./tool_discovery.ts";
import { warmUp } from "./warm_up.ts";

/** Functions that code may use without an import. */
const PREDEFINED = {
  callMcpTool: client.callMcpTool,
  describeTools: client.describeTools,
  progress: client.progress,
  require: loadBuiltin,
  searchTools: client.searchTools,
  show: client.show,
};

const end = Deno.exit;

/** Return a module of Node, as code of another module system asks for it. */
function loadBuiltin(name: unknown): unknown {
  const found = process.getBuiltinModule(String(name));
  if (found !== undefined) return found;
  throw new TypeError(
    `require(${JSON.stringify(name)}): only modules of Node can be required; write \`await import(...)\``,
  );
}

async function main(): Promise<void> {
  const workspace = Deno.cwd();
  const channel = new Channel();
  const own = new Map<string, Record<string, unknown>>([
    ["client", client],
    ["tool_discovery", toolDiscovery],
    ["skills", skills],
  ]);
  const loader = new Loader(workspace, own);
  const stacks = new Stacks(workspace, (url) => {
    const found = loader.find(url);
    return found === undefined ? undefined : { file: found.file, locate: found.code.locate };
  });
  const engine = new Engine();
  await engine.connect();
  const hooks = new Hooks(loader, workspace);
  const streams = new StandardStreams();
  const timers = new Timers();
  const network = new Network();
  const runner = new JobRunner({ channel, engine, hooks, loader, stacks, network, streams, timers, workspace });
  hooks.install();
  await warmUp(engine).catch(() => {});
  streams.install();
  timers.install();
  network.install();
  stacks.install();
  runner.install();
  for (const [name, value] of Object.entries(PREDEFINED)) {
    Object.defineProperty(globalThis, name, { value, configurable: true, writable: true, enumerable: false });
  }
  seal();
  channel.send({ type: "ready", forks: false, preimport: [] });
  for (;;) {
    const job = (await channel.receive()) as unknown as Job;
    await runner.run(job);
    // The supervisor ends this process, unless it has another job of the session.
  }
}

// Without `await`: the engine tells of an idle event loop only once this module has been evaluated.
main().catch((error: unknown) => {
  Deno.stderr.writeSync(new TextEncoder().encode(`mcp-exec runner: ${Deno.inspect(error, { colors: false })}\n`));
  end(1);
});
