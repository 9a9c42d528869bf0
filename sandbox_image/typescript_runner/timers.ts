/** Timers of the code: how many are left when it has ended, and their end if it is interrupted. */

const SET = ["setTimeout", "setInterval"] as const;
const CLEAR = ["clearTimeout", "clearInterval"] as const;

/** The timers that are running. */
export class Timers {
  readonly #running = new Set<unknown>();
  readonly #clear = globalThis.clearTimeout;

  /** Take note of timers from now on. */
  install(): void {
    for (const name of SET) this.#wrapSet(name);
    for (const name of CLEAR) this.#wrapClear(name);
  }

  /** Number of running timers. */
  get count(): number {
    return this.#running.size;
  }

  /** End all timers. */
  clear(): void {
    for (const timer of this.#running) this.#clear(timer as number);
    this.#running.clear();
  }

  #wrapSet(name: (typeof SET)[number]): void {
    const original = globalThis[name] as (call: unknown, ...rest: unknown[]) => unknown;
    const running = this.#running;
    const isOnce = name === "setTimeout";
    const wrapped = (call: unknown, ...rest: unknown[]): unknown => {
      const run = (...values: unknown[]) => {
        if (isOnce) running.delete(timer);
        return (call as (...values: unknown[]) => unknown)(...values);
      };
      const timer = original(typeof call === "function" ? run : call, ...rest);
      running.add(timer);
      return timer;
    };
    define(name, wrapped);
  }

  #wrapClear(name: (typeof CLEAR)[number]): void {
    const original = globalThis[name] as (timer: unknown) => void;
    define(name, (timer: unknown) => {
      this.#running.delete(timer);
      original(timer);
    });
  }
}

function define(name: string, value: unknown): void {
  Object.defineProperty(value, "name", { value: name });
  Object.defineProperty(globalThis, name, { value, configurable: true, writable: true, enumerable: true });
}
