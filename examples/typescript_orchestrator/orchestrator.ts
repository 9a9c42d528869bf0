/** Tasks of an agent as executions: code in TypeScript that calls tools, skills that are kept, and statistics. */
import { Client, type Run, type Skill } from "mcp-exec-client";

export interface AgentTask {
  /** What the task is found by: its executions have it as the label `task`. */
  id: string;
  description: string;
  /** Code whose `return` is the result. Each server of `requiredTools` is an object in it. */
  code: string;
  /** Servers whose tools the code may call. */
  requiredTools: string[];
  status: "pending" | "running" | "completed" | "failed";
}

export interface TaskResult<T> {
  success: boolean;
  /** What the code returned. */
  data: T;
  /** Why it failed, for the model that wrote it. */
  error: string | undefined;
  stats: {
    /** Milliseconds that the code ran. */
    duration: number;
    /** Tokens that a model reads of output and result: an estimate. */
    tokensUsed: number;
    /** Bytes of memory at most. */
    memoryUsed: number;
    toolsCalled: string[];
  };
}

export interface OrchestratorStats {
  servers: number;
  tools: number;
  skills: number;
  activeTasks: number;
  /** Most executions at once; undefined if the key has no such limit. */
  maxConcurrentTasks: number | undefined;
}

const LANGUAGE = "typescript";

/** The orchestrator. It holds no state but the names of the servers: tasks and skills are objects of the cluster. */
export class MCPOrchestrator {
  readonly #client: Client;
  #servers: ReadonlySet<string> = new Set();

  constructor(client = new Client()) {
    this.#client = client;
  }

  /** Read which servers there are. */
  async initialize(): Promise<void> {
    const { servers } = await this.#client.getStats();
    this.#servers = new Set(servers?.map((each) => each.name));
  }

  /** Run a task's code to its end. A failure is a result, too. */
  async executeTask<T = unknown>(task: AgentTask): Promise<TaskResult<T>> {
    const { id, description, code, requiredTools } = task;
    this.#checkServers(requiredTools);
    task.status = "running";
    const tools = requiredTools.map((server) => `${server}.*`);
    const options = { language: LANGUAGE, description, labels: { task: id }, tools } as const;
    const run = await this.#client.run(importing(requiredTools) + code, options);
    task.status = run.succeeded ? "completed" : "failed";
    return summarize<T>(run);
  }

  /** Save code as a draft of a skill. Tags that are names of servers say which tools it calls. */
  async saveSkill(name: string, description: string, code: string, tags: string[] = []): Promise<Skill> {
    const servers = tags.filter((tag) => this.#servers.has(tag));
    const source = `${importing(servers)}export async function run() {${code}\n}\n`;
    const tools = servers.map((server) => `${server}.*`);
    return this.#client.saveSkill({ body: { name, description, language: LANGUAGE, code: source, tags, tools } });
  }

  /** Run the newest approved version of a skill, or the caller's own draft if none is approved. */
  async executeSkill<T = unknown>(name: string): Promise<TaskResult<T>> {
    const [newest] = (await this.#client.listSkillVersions(name)).items;
    return summarize<T>(await this.#client.runSkill(name, {}, { language: LANGUAGE, tools: newest?.tools ?? [] }));
  }

  /** Return the skills that match, best first. */
  async searchSkills(query: string): Promise<Skill[]> {
    return (await this.#client.listSkills({ query: { query } })).items;
  }

  async getStats(): Promise<OrchestratorStats> {
    const [stats, skills] = await Promise.all([this.#client.getStats(), this.#client.listSkills()]);
    return {
      servers: stats.servers?.length ?? 0,
      tools: stats.tools ?? 0,
      skills: new Set(skills.items.map((each) => each.name)).size,
      activeTasks: stats.executions.own,
      maxConcurrentTasks: stats.limits.maxConcurrent ?? undefined,
    };
  }

  #checkServers(names: readonly string[]): void {
    const missing = names.find((name) => !this.#servers.has(name));
    if (missing === undefined) return;
    throw new Error(`there is no server ${missing}; there are: ${[...this.#servers].join(", ") || "none"}`);
  }
}

/** Return an import of servers as objects, without a line of its own, so that lines in errors are those of the code. */
function importing(servers: readonly string[]): string {
  return servers.length ? `import { ${servers.join(", ")} } from "servers"; ` : "";
}

function summarize<T>(run: Run): TaskResult<T> {
  return {
    success: run.succeeded,
    data: run.result as T,
    error: run.succeeded ? undefined : (run.error?.message ?? run.reason),
    stats: {
      duration: run.durations?.run ?? 0,
      tokensUsed: run.usage?.tokens?.returned ?? 0,
      memoryUsed: run.usage?.peakMemoryBytes ?? 0,
      toolsCalled: Object.keys(run.toolCalls?.byTool ?? {}),
    },
  };
}
