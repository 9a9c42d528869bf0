// `make generate` writes this file from mcp_exec_api.wire.execution_options.
import type { components } from "./schema.ts";
import type { Loose } from "./types.ts";

type Body = Loose<components["schemas"]["NewExecution"]>;

/** Options of an execution. One that is not given, or null, has the gateway's default. */
export interface RunOptions {
  /**
   * Input data as a JSON object, at most 256 KiB. The code has it as the variable `context`, and each key as a
   * variable of its own.
   */
  context?: Body["context"] | null | undefined;
  /**
   * Wall-clock seconds that the code may run, at most `maxTimeoutSeconds` of the pool. The time while a call waits
   * for an approval does not count. Default: 30.
   */
  timeoutSeconds?: Body["timeoutSeconds"] | null | undefined;
  /**
   * Tools that the code may call, for example `github.create_issue` or `filesystem.*`. By default it may call
   * none.
   */
  tools?: Body["tools"] | null | undefined;
  /** What the code is for, for people: one line of at most 200 characters. It has no effect on the run. */
  description?: Body["description"] | null | undefined;
  /**
   * Session that the code runs in: variables, imports and files of the owner's earlier executions in it are still
   * there. A session that does not exist is created. By default the code runs without one.
   */
  session?: Body["session"] | null | undefined;
  /**
   * Workspace whose files the code has: its name, or name and mode. Write saves the changes as a new version, Read
   * drops them.
   */
  workspace?: Body["workspace"] | null | undefined;
  /**
   * Skill to run instead of code. Its function `run` gets the context's members as its arguments. Default: the
   * newest approved version.
   */
  skillRef?: Body["skillRef"] | null | undefined;
  /**
   * Skills that the code imports by computed names. Those that it names in `skills.NAME` or `from skills import
   * NAME` need not be listed.
   */
  skills?: Body["skills"] | null | undefined;
  /** Pool whose pod runs the code. Default: default. */
  pool?: NonNullable<Body["poolRef"]>["name"] | null | undefined;
  /**
   * Language of the code: python or typescript. By default it is that of the pool; a pool of another language
   * refuses the execution.
   */
  language?: Body["language"] | null | undefined;
  /**
   * Seconds that calls may wait for approvals, all of them together; 10 minutes by default. With 0, calls that
   * need an approval are denied.
   */
  approvalTimeoutSeconds?: Body["approvalTimeoutSeconds"] | null | undefined;
  /** Most bytes kept of stdout, of stderr and of the result, each. Default: 65536. */
  outputBytes?: NonNullable<Body["limits"]>["outputBytes"] | null | undefined;
  /** Most tool calls. Default: 100. */
  toolCalls?: NonNullable<Body["limits"]>["toolCalls"] | null | undefined;
  /**
   * Name of the execution: 1 to 63 lower-case letters, digits and `-`. By default the gateway generates one. If
   * another execution has the name, the response is a 409.
   */
  name?: Body["name"] | null | undefined;
  /**
   * Own labels, at most 16, for `labelSelector` in lists. Keys have no prefix, and keys and values are 1 to 63
   * letters, digits, `-`, `_` and `.`, with a letter or digit at both ends. A value may be empty.
   */
  labels?: Body["labels"] | null | undefined;
  /**
   * Conversation that the execution is part of, in the form of a label's value. It becomes the label
   * `mcp-exec.dev/conversation`.
   */
  conversation?: Body["conversation"] | null | undefined;
  /**
   * What the execution is for: filtering, workflow, polling or other. It becomes the label
   * `mcp-exec.dev/use-case`.
   */
  useCase?: Body["useCase"] | null | undefined;
  /** User on whose behalf the code runs. ToolServers with credentials per user are called with this user's. */
  user?: Body["user"] | null | undefined;
  /**
   * Priority in the queue for a pod: High before Normal before Low. Lower classes get a share, so none starves.
   * Default: Normal.
   */
  priority?: Body["priority"] | null | undefined;
  /**
   * Seconds from its end to its deletion; the default is 1 hour. The operator deletes it after 7 days at the
   * latest, or after the chart's `operator.maxTtlSeconds`.
   */
  ttlSeconds?: Body["ttlSecondsAfterFinished"] | null | undefined;
}

/** Places of the options in the body of a request. */
export const OPTION_FIELDS: Readonly<Record<keyof RunOptions, string>> = {
  context: "context",
  timeoutSeconds: "timeoutSeconds",
  tools: "tools",
  description: "description",
  session: "session",
  workspace: "workspace",
  skillRef: "skillRef",
  skills: "skills",
  pool: "poolRef.name",
  language: "language",
  approvalTimeoutSeconds: "approvalTimeoutSeconds",
  outputBytes: "limits.outputBytes",
  toolCalls: "limits.toolCalls",
  name: "name",
  labels: "labels",
  conversation: "conversation",
  useCase: "useCase",
  user: "user",
  priority: "priority",
  ttlSeconds: "ttlSecondsAfterFinished",
};
