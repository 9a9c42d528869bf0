/** Three servers in one task: rows of a database, an issue about them, and documentation. */
import { type AgentTask, MCPOrchestrator } from "./orchestrator.ts";

const orchestrator = new MCPOrchestrator();
await orchestrator.initialize();

const task: AgentTask = {
  id: "multi-server-task",
  description: "Coordinate several MCP servers",
  code: `
    const users = await supabase.executeSQL("SELECT * FROM users LIMIT 10");
    const emails = users.map((user) => user.email);
    await github.createIssue("owner", "repo", "User Analysis", \`Found \${emails.length} users\`);
    const docs = await context7.getDocsByName("supabase-js", "RLS");
    return { userCount: users.length, issueCreated: true, docsFound: docs.length > 0 };
  `,
  requiredTools: ["supabase", "github", "context7"],
  status: "pending",
};

const result = await orchestrator.executeTask(task);
if (!result.success) throw new Error(result.error);
console.log(JSON.stringify(result.data));
console.log(
  "servers called:",
  [...new Set(result.stats.toolsCalled.map((tool) => tool.split(".")[0]))].sort().join(", "),
);
