/** One question in two ways: with all rows as the answer, as a direct call has them, and with only the answer. */
import { type AgentTask, MCPOrchestrator } from "./orchestrator.ts";

const orchestrator = new MCPOrchestrator();
await orchestrator.initialize();

async function ask(id: string, code: string): Promise<number> {
  const task: AgentTask = {
    id,
    description: "Users of a domain",
    code,
    requiredTools: ["supabase"],
    status: "pending",
  };
  const result = await orchestrator.executeTask(task);
  if (!result.success) throw new Error(result.error);
  return JSON.stringify(result.data).length;
}

const whole = await ask("whole-answer", `return await supabase.executeSQL("SELECT * FROM users");`);
const answer = await ask(
  "computed-answer",
  `
    const users = await supabase.executeSQL("SELECT * FROM users");
    return users.filter((user) => user.email.endsWith("@example.com")).length;
  `,
);
console.log(`a model reads ${whole} characters of the rows, and ${answer} of the answer`);
