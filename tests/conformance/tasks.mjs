// Runs one tool call as a task by the protocol's own client library, and prints what became of it.
// Arguments: address of the endpoint, revision, and the decision on approvals ("Approve" or "Deny"), or "cancel".
// The variable AUTHORIZATION is the header.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { createTaskSessionFromClient, withTasks } from "@modelcontextprotocol/ext-tasks/client";

const [address, revision, decision] = process.argv.slice(2);
const EXTENSION = "io.modelcontextprotocol/tasks";
const authorization = { Authorization: process.env.AUTHORIZATION };
const forms = [];
const statuses = [];

function answer(request) {
  forms.push(request.params.message);
  return { action: "accept", content: { decision } };
}

async function openModern() {
  const meta = {
    "io.modelcontextprotocol/protocolVersion": revision,
    "io.modelcontextprotocol/clientInfo": { name: "tasks", version: "1" },
    "io.modelcontextprotocol/clientCapabilities": { elicitation: {}, extensions: { [EXTENSION]: {} } },
  };
  let id = 0;
  async function dispatch(request, options) {
    const params = { ...request.params, _meta: { ...request.params?._meta, ...meta } };
    const named = params.taskId ?? params.name;
    const response = await fetch(address, {
      method: "POST",
      signal: options?.signal,
      headers: {
        ...authorization,
        "Content-Type": "application/json",
        Accept: "application/json, text/event-stream",
        "MCP-Protocol-Version": revision,
        "Mcp-Method": request.method,
        ...(named === undefined ? {} : { "Mcp-Name": named }),
      },
      body: JSON.stringify({ jsonrpc: "2.0", id: ++id, method: request.method, params }),
    });
    const body = await response.json();
    return "result" in body ? { kind: "result", result: body.result } : { kind: "error", error: body.error };
  }
  const found = await dispatch({ method: "server/discover", params: {} });
  const port = {
    endpointId: address,
    taskCapabilities: { generation: "v2", capabilities: found.result.capabilities.extensions[EXTENSION] },
    dispatch,
    onServerRequest: () => () => {},
    onNotification: () => () => {},
    onInvalidated: () => () => {},
    invalidated: false,
  };
  return withTasks(port, { onInputRequest: answer });
}

async function openLegacy() {
  const client = new Client({ name: "tasks", version: "1" }, { capabilities: { elicitation: {} } });
  await client.connect(new StreamableHTTPClientTransport(new URL(address), { requestInit: { headers: authorization } }));
  return createTaskSessionFromClient(client, { endpointId: address, onInputRequest: answer });
}

const session = revision === "2026-07-28" ? await openModern() : await openLegacy();
const execution = await session.callTool("run_code", { code: "work()" }, { task: { preference: "require" } });
console.log(JSON.stringify({ kind: execution.kind, task: execution.handle?.taskId }));
if (decision === "cancel") await execution.cancel();
const { outcome } = await execution.settle({
  onEvent: (event) => {
    if (event.type === "task") statuses.push(event.task.status);
  },
});
console.log(JSON.stringify({ status: outcome.status, result: outcome.result, forms, statuses }));
await session.close();
process.exit(0);
