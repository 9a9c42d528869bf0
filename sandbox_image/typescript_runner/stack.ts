/** Stacks of errors: only the agent's frames, with their places in the code as it was written. */

import type { Place } from "./pieces.ts";
import { AGENT_FILE } from "./protocol.ts";

/** A call of the agent's code. */
export interface Frame {
  /** Name of the file as texts show it: `agent.ts`, or the path in the workspace. */
  file: string;
  place: Place;
  /** Name of the function, empty at the top level. */
  name: string;
}

/** What the engine knows of a call. */
interface CallSite {
  getFunctionName(): string | null;
  getScriptNameOrSourceURL(): string | null;
  getLineNumber(): number | null;
  getColumnNumber(): number | null;
  isAsync(): boolean;
  isConstructor(): boolean;
}

/** Returns the place in the code as it was written. */
type Locate = (place: Place) => Place;
/** Returns the file of a URL, and how its places are found, or undefined if it is not the agent's. */
export type FindCode = (url: string) => { file: string; locate: Locate } | undefined;

const STACK_FRAMES = 30;

/** Places of all code that runs, and the frames of errors. */
export class Stacks {
  readonly #workspace: string;
  readonly #findModule: FindCode;
  readonly #programs = new Map<string, Locate>();
  readonly #frames = new WeakMap<object, Frame[]>();

  constructor(workspace: string, findModule: FindCode) {
    this.#workspace = workspace;
    this.#findModule = findModule;
  }

  /** Make errors have the agent's frames only from now on. */
  install(): void {
    Error.stackTraceLimit = STACK_FRAMES;
    Object.defineProperty(Error, "prepareStackTrace", {
      value: (error: unknown, sites: CallSite[]) => this.#format(error, sites),
      configurable: true,
      writable: true,
      enumerable: false,
    });
  }

  /** Add the code of a job. */
  add(file: string, locate: Locate): void {
    this.#programs.set(file, locate);
  }

  /** Return the frames of an error, the innermost first. */
  list(error: unknown): Frame[] {
    if (typeof error !== "object" || error === null) return [];
    try {
      // The engine formats a stack when it is read first.
      void (error as Error).stack;
    } catch {
      return [];
    }
    return this.#frames.get(error) ?? [];
  }

  /** Give an error the frames of another, which was made where the agent's code called. */
  move(from: unknown, to: object): void {
    const frames = this.list(from);
    if (frames.length === 0) return;
    this.list(to);
    this.#frames.set(to, frames);
    try {
      Object.defineProperty(to, "stack", {
        value: `${String(to)}${formatFrames(frames)}`,
        configurable: true,
        writable: true,
        enumerable: false,
      });
    } catch {
      // a frozen error
    }
  }

  /** Return a place that the engine reports, as a frame, or null if it is not the agent's. */
  locate(url: string, place: Place, name = ""): Frame | null {
    const program = this.#programs.get(url);
    if (program !== undefined) return { file: url, place: program(place), name };
    const module = this.#findModule(url);
    if (module !== undefined) return { file: this.#shorten(module.file), place: module.locate(place), name };
    return null;
  }

  #format(error: unknown, sites: CallSite[]): string {
    const frames: Frame[] = [];
    for (const site of sites) {
      const url = site.getScriptNameOrSourceURL() ?? "";
      const place = { line: site.getLineNumber() ?? 1, column: site.getColumnNumber() ?? 1 };
      const frame = this.locate(url, place, nameCall(site));
      if (frame !== null) frames.push(frame);
    }
    if (typeof error === "object" && error !== null) this.#frames.set(error, frames);
    return `${describe(error)}${formatFrames(frames)}`;
  }

  #shorten(file: string): string {
    return file.startsWith(`${this.#workspace}/`) ? file.slice(this.#workspace.length + 1) : file;
  }
}

/** Return the name of the file of a session's job: functions of an earlier one keep their own lines. */
export function nameFile(job: number): string {
  return job === 1 ? AGENT_FILE : AGENT_FILE.replace(".", `-${job}.`);
}

/** Return frames as lines, each with a line break before it. */
export function formatFrames(frames: readonly Frame[]): string {
  return frames
    .map(({ file, place, name }) => {
      const where = `${file}:${place.line}:${place.column}`;
      return `\n    at ${name === "" ? where : `${name} (${where})`}`;
    })
    .join("");
}

function nameCall(site: CallSite): string {
  const name = site.getFunctionName() ?? "";
  return site.isConstructor() ? `new ${name}` : name;
}

function describe(error: unknown): string {
  try {
    return String(error);
  } catch {
    return "Error";
  }
}
