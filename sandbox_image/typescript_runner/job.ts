/** Runs of the agent's code: evaluate it, wait for what it has left, report. Sessions have several. */

import process from "node:process";
import type { Channel } from "./channel.ts";
import type { Engine } from "./engine.ts";
import { removeFences } from "./fences.ts";
import { type Hooks, TopLevelReturn } from "./hooks.ts";
import { HOOKS } from "./imports.ts";
import type { Loader } from "./loader.ts";
import type { Network } from "./network.ts";
import { Notes } from "./notes.ts";
import { compile, type Program } from "./program.ts";
import { ProgressReporter } from "./progress.ts";
import type { ErrorFields, Job, Message, Report } from "./protocol.ts";
import { describeError, findLimit, reportEnd } from "./report.ts";
import { setContext } from "./run_context.ts";
import { ArtifactWriter } from "./show.ts";
import { SkillStore } from "./skill_store.ts";
import { formatFrames, nameFile, type Stacks } from "./stack.ts";
import type { StandardStreams } from "./streams.ts";
import { parse } from "./syntax.ts";
import { isName } from "./text.ts";
import type { Timers } from "./timers.ts";
import { ToolSession } from "./tool_session.ts";
import { convertToJson } from "./values.ts";

const RESULT_VARIABLE = "result";
const CONTEXT_NAME = "context";
/** Time for interrupted code to clean up, less than the supervisor waits. */
const CLEANUP_MILLISECONDS = 200;
const setTimer = setTimeout;

/** `process.exit`, as an error. */
class ExitRequest extends Error {
  readonly code: number;

  constructor(code: number) {
    super(`exit with code ${code}`);
    this.name = "ExitRequest";
    this.code = code;
  }
}

/** The time limit, or a cancellation. */
class Interrupted extends Error {
  override readonly name = "Interrupted";
}

/** What runs jobs. */
export interface RunnerParts {
  channel: Channel;
  engine: Engine;
  hooks: Hooks;
  loader: Loader;
  network: Network;
  stacks: Stacks;
  streams: StandardStreams;
  timers: Timers;
  workspace: string;
}

/** Runs jobs: one, or those of a session in one global scope. */
export class JobRunner {
  readonly #parts: RunnerParts;
  /** Names that earlier jobs of the session have declared, or have got from their contexts. */
  readonly #known = new Set<string>();
  readonly #declared = new Set<string>();
  #jobs = 0;
  #notes = new Notes();
  #tools: ToolSession | null = null;
  #progress = new ProgressReporter(() => {});
  #file = "";
  /** Ends the run from outside of its code, with an error. */
  #stop: (reason: unknown) => void = () => {};
  #isInterrupted = false;
  /** What was still running when the code was interrupted, for people. */
  #left = "";

  constructor(parts: RunnerParts) {
    this.#parts = parts;
  }

  /** Handle what code throws where nobody waits for it, interrupts, and requests to exit. */
  install(): void {
    globalThis.addEventListener("unhandledrejection", (event) => {
      event.preventDefault();
      if (!isHandledByCode("unhandledRejection", "onunhandledrejection")) this.#stop(event.reason);
    });
    globalThis.addEventListener("error", (event) => {
      event.preventDefault();
      if (!isHandledByCode("uncaughtException", "onerror")) this.#stop(event.error ?? new Error(event.message));
    });
    Deno.addSignalListener("SIGINT", () => this.#interrupt());
    const exit = (code?: unknown): never => {
      const request = new ExitRequest(Number(code ?? process.exitCode ?? Deno.exitCode ?? 0) & 0xff);
      this.#stop(request);
      throw request;
    };
    Reflect.set(Deno, "exit", exit);
    Reflect.set(process, "exit", exit);
    Reflect.set(process, "reallyExit", exit);
    Reflect.set(process, "abort", () => exit(134));
  }

  /** Run the code and send the report. */
  async run(job: Job): Promise<void> {
    this.#begin(job);
    const stopped = new Promise<never>((_, reject) => (this.#stop = reject));
    stopped.catch(() => {});
    let report = await this.#build(job, Promise.race([this.#evaluate(job), stopped]));
    if (report.error === null && !report.exitCode && this.#hasWork(job)) {
      this.#send({ ...report, type: "ended" });
      const late = await this.#build(job, Promise.race([this.#finish(job), stopped]));
      if (late.error !== null || late.exitCode) {
        report = this.#isInterrupted ? { ...report, left: this.#left } : late;
      }
    }
    this.#stop = () => {};
    this.#progress.flush();
    this.#tools!.writeNotes();
    this.#parts.network.writeNotes(this.#notes);
    if (!job.session || this.#isInterrupted) this.#parts.timers.clear();
    this.#tools!.close();
    this.#send({ ...report, notes: this.#notes.toMessage() });
  }

  #begin(job: Job): void {
    const { loader, stacks, workspace } = this.#parts;
    this.#jobs += 1;
    this.#file = nameFile(this.#jobs);
    this.#notes = new Notes();
    this.#isInterrupted = false;
    this.#parts.network.begin();
    const emit = (event: Message) => this.#emit(event);
    this.#tools = new ToolSession({ access: job.tools, emit, workspace, notes: this.#notes, stacks });
    this.#progress = new ProgressReporter(emit);
    const skills = new SkillStore(job.skills, job.tools?.allow ?? [], emit);
    setContext({
      tools: this.#tools,
      progress: this.#progress,
      artifacts: new ArtifactWriter(workspace, emit),
      skills,
      load: (specifier) => this.#parts.hooks.load(specifier, this.#file),
      ask: (request) => this.#parts.channel.ask(request),
    });
    loader.begin(job.servers, (name) => skills.find(name));
  }

  async #build(job: Job, outcome: Promise<unknown>): Promise<Report> {
    try {
      const value = await outcome;
      return value === undefined ? reportEnd() : this.#reportValue(value, job);
    } catch (error) {
      return this.#reportFailure(error);
    }
  }

  #reportValue(value: unknown, job: Job): Report {
    const result = convertToJson(value, job.outputBytes, this.#notes);
    return reportEnd({ hasValue: true, value: result.value, truncated: result.truncated });
  }

  #reportFailure(error: unknown): Report {
    if (error instanceof ExitRequest) {
      return reportEnd({ exitCode: error.code, error: error.code === 0 ? null : this.#describe(error) });
    }
    return reportEnd({ error: this.#describe(error), limit: findLimit(error) });
  }

  #describe(error: unknown): ErrorFields {
    try {
      return describeError(error, this.#parts.stacks, this.#file);
    } catch {
      return { type: "Error", message: "the failure could not be described", line: null, traceback: "" };
    }
  }

  /** Run the code and return the value that counts as its result. */
  async #evaluate(job: Job): Promise<unknown> {
    const { engine, hooks, stacks } = this.#parts;
    const { code, change } = removeFences(job.code, isCode);
    if (change !== "") this.#notes.add("CodeChanged", change);
    const program = compile(code, this.#file, job.session);
    stacks.add(this.#file, program.locate);
    await this.#setVariables(job.context);
    hooks.value = undefined;
    try {
      await engine.run(program.text, this.#file);
    } catch (error) {
      if (error instanceof TopLevelReturn) return await error.value;
      throw error;
    } finally {
      for (const name of program.variables) this.#known.add(name);
      for (const name of program.declared) this.#declared.add(name);
    }
    return await this.#readValue(program);
  }

  async #readValue(program: Program): Promise<unknown> {
    const { engine, hooks } = this.#parts;
    let value = program.hasValue ? await hooks.value : undefined;
    if (value === undefined && program.assignsResult) {
      await engine.run(`${HOOKS}.value = ${RESULT_VARIABLE};`, "result");
      value = await hooks.value;
    }
    hooks.value = undefined;
    return value;
  }

  /** Make `context` and those of its keys that can be variables global. Names that a sandbox has are read from `context`. */
  async #setVariables(context: Record<string, unknown>): Promise<void> {
    const variables: Record<string, unknown> = { [CONTEXT_NAME]: context };
    for (const [name, value] of Object.entries(context)) if (this.#isVariable(name)) variables[name] = value;
    const again: string[] = [];
    for (const [name, value] of Object.entries(variables)) {
      if (this.#declared.has(name)) again.push(`let ${name} = globalThis.${name};`);
      this.#known.add(name);
      const property = { value, configurable: true, writable: true, enumerable: false };
      // A `var` of an earlier job can only be set.
      if (!Reflect.defineProperty(globalThis, name, property)) Reflect.set(globalThis, name, value);
    }
    // A variable of an earlier job of the session would hide the new value.
    if (again.length > 0) {
      await this.#parts.engine.run(again.join(" "), "context");
    }
  }

  /** Return whether a key can be a variable: an identifier that hides nothing that the sandbox has. */
  #isVariable(name: string): boolean {
    if (!isName(name) || KEYWORDS.has(name) || name.startsWith("__")) return false;
    return !(name in globalThis) || this.#known.has(name) || HIDDEN.has(name);
  }

  /** Return whether the code has left anything that runs. */
  #hasWork(job: Job): boolean {
    return this.#tools!.isBusy || !job.session;
  }

  /** Wait for what the code has left: calls of tools, and if the process ends, everything that keeps one alive. */
  async #finish(job: Job): Promise<undefined> {
    await this.#tools!.finish();
    if (!job.session) await this.#waitUntilIdle();
    return undefined;
  }

  #waitUntilIdle(): Promise<void> {
    const { channel } = this.#parts;
    return new Promise((resolve) => {
      process.once("beforeExit", () => {
        channel.hold();
        resolve();
      });
      channel.release();
    });
  }

  #describeLeft(): string {
    const { count } = this.#parts.timers;
    if (count > 0) return count === 1 ? "a timer was still running" : `${count} timers were still running`;
    if (this.#tools?.isBusy) return "a call of a tool was still running";
    return "something that it had started was still running";
  }

  #interrupt(): void {
    if (this.#isInterrupted) return;
    this.#isInterrupted = true;
    this.#left = this.#describeLeft();
    const frame = this.#tools?.findWaiting();
    const traceback = frame === undefined ? "" : `Waiting for a tool${formatFrames([frame])}\n`;
    this.#send({ type: "interrupted", line: frame?.place.line ?? null, traceback });
    this.#parts.timers.clear();
    this.#tools?.close();
    setTimer(
      () => this.#stop(new Interrupted("the code was interrupted")),
      this.#tools?.isBusy ? CLEANUP_MILLISECONDS : 0,
    );
  }

  /** Send an event, after the output that the code has written before. */
  #emit(event: Message): void {
    this.#send({ ...event, written: this.#parts.streams.countWritten() });
  }

  #send(message: Message | Report): void {
    this.#parts.channel.send(message as Message);
  }
}

const KEYWORDS = new Set(
  ("arguments await break case catch class const continue debugger default delete do else enum eval export extends false" +
    " finally for function if implements import in instanceof interface let new null package private protected public" +
    " return static super switch this throw true try typeof undefined NaN Infinity var void while with yield").split(
      " ",
    ),
);

/** Names that a browser's code would miss, and that mean nothing in a sandbox. */
const HIDDEN = new Set([
  "alert",
  "close",
  "closed",
  "confirm",
  "event",
  "history",
  "location",
  "name",
  "prompt",
  "status",
]);

function isCode(text: string): boolean {
  try {
    parse(text);
    return true;
  } catch {
    return false;
  }
}

function isHandledByCode(event: string, property: string): boolean {
  return process.listenerCount(event) > 0 || typeof Reflect.get(globalThis, property) === "function";
}
