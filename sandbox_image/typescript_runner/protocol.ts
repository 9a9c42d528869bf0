/** Names, bounds and messages of the control channel, as in mcp_exec_sandbox/protocol.py. */

/** The runner's end of the control channel. */
export const CONTROL_FD = 3;
export const AGENT_FILE = "agent.ts";
/** Folder of the workspace with the wrappers of MCP servers. */
export const SERVERS_FOLDER = "servers";
/** Folder of the workspace whose files are artifacts of the run. */
export const ARTIFACTS_FOLDER = "artifacts";
/** Folder of the workspace whose own modules are imported as skills, too. */
export const SKILLS_FOLDER = "skills";

export const MAX_NOTES = 16;
export const NOTE_CHARACTERS = 200;
export const TYPE_CHARACTERS = 200;
export const MESSAGE_CHARACTERS = 4096;
export const TRACEBACK_CHARACTERS = 16_384;
export const TOOL_MESSAGE_CHARACTERS = 1000;
export const PROGRESS_CHARACTERS = 200;
export const ARTIFACT_TEXT_CHARACTERS = 200;
export const PREVIEW_CHARACTERS = 2000;
export const LEFT_CHARACTERS = 400;
export const SAVED_SKILLS = 5;
export const SAVED_CODE_BYTES = 64 * 1024;

export type NoteKind =
  | "ThreadsLeft"
  | "FileFlushed"
  | "FileNotKept"
  | "ValueChanged"
  | "KeysCollided"
  | "OutputCut"
  | "CodeChanged"
  | "NotAwaited"
  | "ErrorIgnored"
  | "NoNetwork"
  | "NotesDropped";

/** One note on a run, as clients see it. The path is empty if the note concerns no value. */
export interface Note {
  kind: NoteKind;
  path: string;
  message: string;
}

/** Error of a failed run, as clients see it. */
export interface ErrorFields {
  type: string;
  message: string;
  line: number | null;
  traceback: string;
}

/** Limit whose exhaustion ended the code with an error. */
export type LimitName = "memory" | "processes" | "storage";

/** The report of a run. */
export interface Report {
  type: "done" | "ended";
  hasValue: boolean;
  value: unknown;
  truncated: boolean;
  error: ErrorFields | null;
  exitCode: number | null;
  limit: LimitName | null;
  peakMemoryBytes: number | null;
  notes?: Note[];
  left?: string;
}

/** The broker's address, the grant and the allowed patterns of a job. */
export interface ToolAccess {
  url: string;
  token: string;
  allow: string[];
}

/** Code of one version of a skill. */
export interface SkillSource {
  code: string;
  tools: string[];
}

/** The skills of a job. */
export interface JobSkills {
  sources: Record<string, SkillSource>;
  modules: Record<string, string>;
  catalog: Record<string, unknown>[];
}

/** The job from the supervisor, which has checked it. */
export interface Job {
  code: string;
  context: Record<string, unknown>;
  outputBytes: number;
  tools: ToolAccess | null;
  servers: string[] | null;
  session: boolean;
  skills: JobSkills | null;
}

export type Message = Record<string, unknown>;
/** Sends an event to the supervisor. */
export type Emit = (event: Message) => void;
