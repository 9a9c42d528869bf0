/** What belongs to the job that runs: one per process, as the modules that code imports are. */

import type { ProgressReporter } from "./progress.ts";
import type { Message } from "./protocol.ts";
import type { ArtifactWriter } from "./show.ts";
import type { SkillStore } from "./skill_store.ts";
import type { ToolSession } from "./tool_session.ts";

/** Parts of the sandbox that serve a job's code. */
export interface RunContext {
  tools: ToolSession;
  progress: ProgressReporter;
  artifacts: ArtifactWriter;
  skills: SkillStore;
  /** Import a module as the job's code does. */
  load: (specifier: string) => Promise<Record<string, unknown>>;
  /** Ask the supervisor. */
  ask: (request: Message) => Promise<Message>;
}

let current: RunContext | null = null;

/** Make these parts those of the process. */
export function setContext(context: RunContext): void {
  current = context;
}

/** Return the parts of the job that runs. */
export function getContext(): RunContext {
  if (current === null) throw new Error("no job runs");
  return current;
}
