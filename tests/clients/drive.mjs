// Calls of `run_code` by an MCP client for JavaScript: CLIENT in|out CALLS. It is read from standard input in the folder
// that has node_modules, because that is where its imports are then looked for.
// `out` opens a session for each call. Each call prints a line: its result as the client shows it.
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { promisify } from "node:util";

const url = process.env.MCP_EXEC_URL;
const headers = { Authorization: `Bearer ${process.env.MCP_EXEC_API_KEY}` };
const code = "import time; time.time_ns()";
const call = { name: "run_code", arguments: { code } };
const info = { name: "drive", version: "1" };
const run = promisify(execFile);

const clients = {
  async sdk() {
    const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
    const { StreamableHTTPClientTransport } = await import("@modelcontextprotocol/sdk/client/streamableHttp.js");
    const client = new Client(info);
    await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
    return { call: () => client.callTool(call), close: () => client.close() };
  },
  async client() {
    const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
    const client = new Client(info);
    await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
    return { call: () => client.callTool(call), close: () => client.close() };
  },
  async aiSdk() {
    const { createMCPClient } = await import("@ai-sdk/mcp");
    const client = await createMCPClient({ transport: { type: "http", url, headers } });
    const tools = await client.tools();
    return { call: () => tools.run_code.execute({ code }, { messages: [], toolCallId: "1" }), close: () => client.close() };
  },
  async mcporter() {
    const { createRuntime } = await import("mcporter");
    const server = { name: "mcp-exec", command: { kind: "http", url: new URL(url), headers } };
    const runtime = await createRuntime({ servers: [server] });
    return { call: () => runtime.callTool("mcp-exec", "run_code", { args: { code } }), close: () => runtime.close() };
  },
  async inspector() {
    const root = "node_modules/@modelcontextprotocol/inspector";
    const program = `${root}/${JSON.parse(readFileSync(`${root}/package.json`)).bin["mcp-inspector"]}`;
    const options = ["--cli", url, "--transport", "http", "--header", `Authorization: ${headers.Authorization}`];
    const asked = ["--method", "tools/call", "--tool-name", "run_code", "--tool-arg", `code=${code}`];
    return { call: async () => (await run(process.execPath, [program, ...options, ...asked])).stdout, close: () => {} };
  },
};

const [name, sessions, calls] = process.argv.slice(2);
let client;
for (let number = 0; number < Number(calls); number++) {
  client = client ?? (await clients[name]());
  const result = await client.call();
  console.log((typeof result === "string" ? result : JSON.stringify(result)).replaceAll("\n", " "));
  if (sessions === "out") {
    await client.close();
    client = undefined;
  }
}
await client?.close();
process.exit(0);
