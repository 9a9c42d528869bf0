/** What rewritten code calls, under one global name that it can not replace. */

import path from "node:path";
import { HOOKS } from "./imports.ts";
import type { Loader, Namespace } from "./loader.ts";

/** The value of a top-level `return`. It is thrown, and no `catch` of the code sees it. */
export class TopLevelReturn {
  readonly value: unknown;

  constructor(value: unknown) {
    this.value = value;
  }
}

/** Functions of rewritten code. */
export class Hooks {
  /** Value of the last expression. */
  value: unknown;
  readonly #loader: Loader;
  readonly #workspace: string;

  constructor(loader: Loader, workspace: string) {
    this.#loader = loader;
    this.#workspace = workspace;
  }

  /** Give the code this object. */
  install(): void {
    const value = {
      import: (specifier: string, names: string[], referrer: string) =>
        this.#loader.import(specifier, names, this.#resolve(referrer)),
      importFrom: (referrer: string) => (specifier: unknown) => this.load(String(specifier), referrer),
      meta: (referrer: string) => this.#describe(this.#resolve(referrer)),
      hold,
      holdAll,
      return: (returned: unknown) => new TopLevelReturn(returned),
      pass: (error: unknown) => {
        if (error instanceof TopLevelReturn) throw error;
      },
    };
    const setValue = (found: unknown) => (this.value = found);
    Object.defineProperty(value, "value", { set: setValue });
    Object.defineProperty(globalThis, HOOKS, { value: Object.freeze(value) });
  }

  /** Import a module as code of the workspace does. */
  load(specifier: string, referrer: string): Promise<Namespace> {
    return this.#loader.load(specifier, this.#resolve(referrer));
  }

  #resolve(referrer: string): string {
    return path.resolve(this.#workspace, referrer);
  }

  #describe(file: string): Record<string, unknown> {
    const isMain = path.dirname(file) === this.#workspace && path.basename(file).startsWith("agent");
    const resolve = (specifier: string) => new URL(specifier, `file://${file}`).href;
    return { url: `file://${file}`, main: isMain, filename: file, dirname: path.dirname(file), resolve };
  }
}

/** What programs await at their top level, until it is settled. */
const HELD = new Set<Promise<unknown>>();

function hold(value: unknown): Promise<unknown> {
  const promise = Promise.resolve(value);
  const release = () => HELD.delete(promise);
  HELD.add(promise);
  promise.then(release, release);
  return promise;
}

type AnyIterable = Partial<AsyncIterable<unknown> & Iterable<unknown>>;

/** Return an iterable whose steps are held. */
function holdAll(items: AnyIterable): unknown {
  const open = items[Symbol.asyncIterator] ?? items[Symbol.iterator];
  // The loop itself says best what is wrong.
  if (typeof open !== "function") return items;
  const isAsync = items[Symbol.asyncIterator] !== undefined;
  const inner: AsyncIterator<unknown> = Reflect.apply(open, items, []);
  const next = async () => {
    const step = await inner.next();
    return isAsync ? step : { done: step.done, value: await step.value };
  };
  const close = async (value: unknown) => (await inner.return?.(value)) ?? { done: true, value };
  const iterator = { next: () => hold(next()), return: (value: unknown) => hold(close(value)) };
  return { [Symbol.asyncIterator]: () => iterator };
}
