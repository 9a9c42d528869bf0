/** Client of mcp-exec, which runs the code that AI agents write in sandbox pods on your own Kubernetes. */
export type { Answer, Given } from "./api.ts";
export { Client, raiseForFailure } from "./client.ts";
export type { FileOptions, ListOptions, ReadOptions, SubmitOptions, WaitOptions, WriteOptions } from "./client.ts";
export * from "./errors.ts";
export type { FollowOptions } from "./events.ts";
export type { RunOptions } from "./options.ts";
export type { components, operations } from "./schema.ts";
export { OpenSession, type SessionOptions } from "./session.ts";
export { type CallOptions, type ClientOptions, type RetryPolicy, Transport } from "./transport.ts";
export type * from "./types.ts";
