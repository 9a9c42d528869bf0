// `make generate` writes this file from openapi.json.
import { type Answer, Api, type Given } from "./api.ts";

/** Every operation of the API that answers with JSON or without a body, under the name that openapi.json gives it. */
export class Operations extends Api {
  /** Run code. */
  createExecution(options: Given<"createExecution"> = {}): Promise<Answer<"createExecution">> {
    return this.request("POST", "/v1/executions", {}, options);
  }

  /** List executions. */
  listExecutions(options: Given<"listExecutions"> = {}): Promise<Answer<"listExecutions">> {
    return this.request("GET", "/v1/executions", {}, options);
  }

  /** Get an execution. */
  getExecution(name: string, options: Given<"getExecution"> = {}): Promise<Answer<"getExecution">> {
    return this.request("GET", "/v1/executions/{name}", { name }, options);
  }

  /** Cancel or delete an execution. */
  cancelExecution(name: string, options: Given<"cancelExecution"> = {}): Promise<Answer<"cancelExecution">> {
    return this.request("DELETE", "/v1/executions/{name}", { name }, options);
  }

  /** List pending approvals. */
  listPendingApprovals(options: Given<"listPendingApprovals"> = {}): Promise<Answer<"listPendingApprovals">> {
    return this.request("GET", "/v1/approvals", {}, options);
  }

  /** List an execution's approvals. */
  listApprovals(name: string, options: Given<"listApprovals"> = {}): Promise<Answer<"listApprovals">> {
    return this.request("GET", "/v1/executions/{name}/approvals", { name }, options);
  }

  /** Approve or deny a tool call. */
  decideApproval(name: string, id: string, options: Given<"decideApproval"> = {}): Promise<Answer<"decideApproval">> {
    return this.request("POST", "/v1/executions/{name}/approvals/{id}", { name, id }, options);
  }

  /** Search for tools. */
  searchTools(options: Given<"searchTools"> = {}): Promise<Answer<"searchTools">> {
    return this.request("GET", "/api/v1/mcp/tools/search", {}, options);
  }

  /** List a server's tools. */
  listTools(name: string, options: Given<"listTools"> = {}): Promise<Answer<"listTools">> {
    return this.request("GET", "/api/v1/mcp/servers/{name}/tools", { name }, options);
  }

  /** Create a session. */
  createSession(options: Given<"createSession"> = {}): Promise<Answer<"createSession">> {
    return this.request("POST", "/v1/sessions", {}, options);
  }

  /** List sessions. */
  listSessions(options: Given<"listSessions"> = {}): Promise<Answer<"listSessions">> {
    return this.request("GET", "/v1/sessions", {}, options);
  }

  /** Get a session. */
  getSession(name: string, options: Given<"getSession"> = {}): Promise<Answer<"getSession">> {
    return this.request("GET", "/v1/sessions/{name}", { name }, options);
  }

  /** Delete a session. */
  deleteSession(name: string, options: Given<"deleteSession"> = {}): Promise<Answer<"deleteSession">> {
    return this.request("DELETE", "/v1/sessions/{name}", { name }, options);
  }

  /** Reset a session. */
  resetSession(name: string, options: Given<"resetSession"> = {}): Promise<Answer<"resetSession">> {
    return this.request("POST", "/v1/sessions/{name}/reset", { name }, options);
  }

  /** Save a skill. */
  saveSkill(options: Given<"saveSkill"> = {}): Promise<Answer<"saveSkill">> {
    return this.request("POST", "/v1/skills", {}, options);
  }

  /** List skills. */
  listSkills(options: Given<"listSkills"> = {}): Promise<Answer<"listSkills">> {
    return this.request("GET", "/v1/skills", {}, options);
  }

  /** List the versions of a skill. */
  listSkillVersions(name: string, options: Given<"listSkillVersions"> = {}): Promise<Answer<"listSkillVersions">> {
    return this.request("GET", "/v1/skills/{name}/versions", { name }, options);
  }

  /** Get a version of a skill. */
  getSkill(name: string, version: number, options: Given<"getSkill"> = {}): Promise<Answer<"getSkill">> {
    return this.request("GET", "/v1/skills/{name}/versions/{version}", { name, version }, options);
  }

  /** Delete a version of a skill. */
  deleteSkill(name: string, version: number, options: Given<"deleteSkill"> = {}): Promise<Answer<"deleteSkill">> {
    return this.request("DELETE", "/v1/skills/{name}/versions/{version}", { name, version }, options);
  }

  /** Approve a version of a skill. */
  approveSkill(name: string, version: number, options: Given<"approveSkill"> = {}): Promise<Answer<"approveSkill">> {
    return this.request("POST", "/v1/skills/{name}/versions/{version}/approve", { name, version }, options);
  }

  /** Deprecate a version of a skill. */
  deprecateSkill(name: string, version: number, options: Given<"deprecateSkill"> = {}): Promise<Answer<"deprecateSkill">> {
    return this.request("POST", "/v1/skills/{name}/versions/{version}/deprecate", { name, version }, options);
  }

  /** List an execution's artifacts. */
  listArtifacts(name: string, options: Given<"listArtifacts"> = {}): Promise<Answer<"listArtifacts">> {
    return this.request("GET", "/v1/executions/{name}/artifacts", { name }, options);
  }

  /** List workspaces. */
  listWorkspaces(options: Given<"listWorkspaces"> = {}): Promise<Answer<"listWorkspaces">> {
    return this.request("GET", "/v1/workspaces", {}, options);
  }

  /** Get a workspace. */
  getWorkspace(name: string, options: Given<"getWorkspace"> = {}): Promise<Answer<"getWorkspace">> {
    return this.request("GET", "/v1/workspaces/{name}", { name }, options);
  }

  /** Create a workspace, or replace its settings. */
  putWorkspace(name: string, options: Given<"putWorkspace"> = {}): Promise<Answer<"putWorkspace">> {
    return this.request("PUT", "/v1/workspaces/{name}", { name }, options);
  }

  /** Delete a workspace. */
  deleteWorkspace(name: string, options: Given<"deleteWorkspace"> = {}): Promise<Answer<"deleteWorkspace">> {
    return this.request("DELETE", "/v1/workspaces/{name}", { name }, options);
  }

  /** List the versions of a workspace. */
  listVersions(name: string, options: Given<"listVersions"> = {}): Promise<Answer<"listVersions">> {
    return this.request("GET", "/v1/workspaces/{name}/versions", { name }, options);
  }

  /** Restore a version of a workspace. */
  restoreWorkspace(name: string, options: Given<"restoreWorkspace"> = {}): Promise<Answer<"restoreWorkspace">> {
    return this.request("POST", "/v1/workspaces/{name}/restore", { name }, options);
  }

  /** List the files of a workspace. */
  listFiles(name: string, options: Given<"listFiles"> = {}): Promise<Answer<"listFiles">> {
    return this.request("GET", "/v1/workspaces/{name}/files", { name }, options);
  }

  /** Delete a file or a folder of a workspace. */
  deleteFile(name: string, path: string, options: Given<"deleteFile"> = {}): Promise<Answer<"deleteFile">> {
    return this.request("DELETE", "/v1/workspaces/{name}/files/{path}", { name, path }, options);
  }

  /** Report what a model used. */
  reportUsage(conversation: string, options: Given<"reportUsage"> = {}): Promise<Answer<"reportUsage">> {
    return this.request("POST", "/v1/conversations/{conversation}/usage", { conversation }, options);
  }

  /** Report what a person thinks. */
  reportFeedback(conversation: string, options: Given<"reportFeedback"> = {}): Promise<Answer<"reportFeedback">> {
    return this.request("POST", "/v1/conversations/{conversation}/feedback", { conversation }, options);
  }

  /** List records. */
  listRecords(table: string, options: Given<"listRecords"> = {}): Promise<Answer<"listRecords">> {
    return this.request("GET", "/v1/records/{table}", { table }, options);
  }

  /** Get usage. */
  getUsage(options: Given<"getUsage"> = {}): Promise<Answer<"getUsage">> {
    return this.request("GET", "/v1/usage", {}, options);
  }

  /** List the last uses of API keys. */
  listKeyUses(options: Given<"listKeyUses"> = {}): Promise<Answer<"listKeyUses">> {
    return this.request("GET", "/v1/key-uses", {}, options);
  }

  /** List audit records of tool calls. */
  listCalls(options: Given<"listCalls"> = {}): Promise<Answer<"listCalls">> {
    return this.request("GET", "/v1/audit", {}, options);
  }

  /** List rollouts. */
  listRollouts(options: Given<"listRollouts"> = {}): Promise<Answer<"listRollouts">> {
    return this.request("GET", "/v1/rollouts", {}, options);
  }

  /** Get a rollout. */
  getRollout(name: string, options: Given<"getRollout"> = {}): Promise<Answer<"getRollout">> {
    return this.request("GET", "/v1/rollouts/{name}", { name }, options);
  }

  /** Get the arm of a unit. */
  assignArm(name: string, options: Given<"assignArm"> = {}): Promise<Answer<"assignArm">> {
    return this.request("POST", "/v1/rollouts/{name}/assignments", { name }, options);
  }

  /** Promote a rollout. */
  promoteRollout(name: string, options: Given<"promoteRollout"> = {}): Promise<Answer<"promoteRollout">> {
    return this.request("POST", "/v1/rollouts/{name}/promote", { name }, options);
  }

  /** Pause a rollout. */
  pauseRollout(name: string, options: Given<"pauseRollout"> = {}): Promise<Answer<"pauseRollout">> {
    return this.request("POST", "/v1/rollouts/{name}/pause", { name }, options);
  }

  /** Resume a rollout. */
  resumeRollout(name: string, options: Given<"resumeRollout"> = {}): Promise<Answer<"resumeRollout">> {
    return this.request("POST", "/v1/rollouts/{name}/resume", { name }, options);
  }

  /** Abort a rollout. */
  abortRollout(name: string, options: Given<"abortRollout"> = {}): Promise<Answer<"abortRollout">> {
    return this.request("POST", "/v1/rollouts/{name}/abort", { name }, options);
  }

  /** Report an outcome. */
  reportOutcome(name: string, options: Given<"reportOutcome"> = {}): Promise<Answer<"reportOutcome">> {
    return this.request("POST", "/v1/rollouts/{name}/outcomes", { name }, options);
  }

  /** Get the report of a rollout. */
  getRolloutReport(name: string, options: Given<"getRolloutReport"> = {}): Promise<Answer<"getRolloutReport">> {
    return this.request("GET", "/v1/rollouts/{name}/report", { name }, options);
  }

  /** Get statistics of a namespace. */
  getStats(options: Given<"getStats"> = {}): Promise<Answer<"getStats">> {
    return this.request("GET", "/v1/stats", {}, options);
  }

  /** Check liveness. */
  checkLiveness(options: Given<"checkLiveness"> = {}): Promise<Answer<"checkLiveness">> {
    return this.request("GET", "/healthz", {}, options);
  }

  /** Check readiness. */
  checkReadiness(options: Given<"checkReadiness"> = {}): Promise<Answer<"checkReadiness">> {
    return this.request("GET", "/readyz", {}, options);
  }

  /** Get the gateway's version. */
  getVersion(options: Given<"getVersion"> = {}): Promise<Answer<"getVersion">> {
    return this.request("GET", "/v1/version", {}, options);
  }
}
