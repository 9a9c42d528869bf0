/** The tables of a database, and the statistics of the task. */
import { type AgentTask, MCPOrchestrator } from "./orchestrator.ts";

const orchestrator = new MCPOrchestrator();
await orchestrator.initialize();

const task: AgentTask = {
  id: "list-tables",
  description: "List Supabase tables",
  code: `
    const tables = await supabase.listTables(["public"]);
    return tables.map((table) => table.name);
  `,
  requiredTools: ["supabase"],
  status: "pending",
};

const result = await orchestrator.executeTask<string[]>(task);
if (!result.success) throw new Error(result.error);
console.log("tables:", result.data.join(", "));
console.log("called:", result.stats.toolsCalled.join(", "));
console.log("task:", task.status);
