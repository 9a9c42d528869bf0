/** Attempts of code to reach a network, which no sandbox has: their errors read as if they could pass. */

import type { Notes } from "./notes.ts";
import { shortenLine } from "./text.ts";

const SENTENCE = "a sandbox has no network; call a tool instead";
const LOCAL = ["localhost", "127.0.0.1", "[::1]", "::1"];
const MAX_HOSTS = 1000;
const MAX_NAMED = 3;
const NAME_CHARACTERS = 40;

/** Hosts that `fetch` and `Deno.connect` have not reached. */
export class Network {
  readonly #hosts = new Set<string>();

  /** Take note of attempts from now on. */
  install(): void {
    const fetch = globalThis.fetch;
    const connect = Deno.connect;
    define(globalThis, "fetch", (input: RequestInfo | URL, init?: RequestInit) => {
      return this.#watch(fetch(input, init), () => new URL(input instanceof Request ? input.url : input).hostname);
    });
    define(Deno, "connect", (options: Deno.ConnectOptions) => {
      return this.#watch((connect as (options: unknown) => Promise<unknown>)(options), () => String(options.hostname));
    });
  }

  /** Begin a job. */
  begin(): void {
    this.#hosts.clear();
  }

  /** Add a note on the hosts, if there were attempts. */
  writeNotes(notes: Notes): void {
    const hosts = [...this.#hosts];
    if (hosts.length === 0) return;
    const named = hosts.slice(0, MAX_NAMED).map((host) => shortenLine(host, NAME_CHARACTERS)).join(", ");
    const more = hosts.length > MAX_NAMED ? ` and ${hosts.length - MAX_NAMED} more` : "";
    notes.add("NoNetwork", `${named}${more} can't be reached: ${SENTENCE}.`);
  }

  async #watch<T>(attempt: Promise<T>, findHost: () => string): Promise<T> {
    try {
      return await attempt;
    } catch (error) {
      this.#add(findHost);
      throw error;
    }
  }

  #add(findHost: () => string): void {
    try {
      const host = findHost();
      if (!LOCAL.includes(host) && this.#hosts.size < MAX_HOSTS) this.#hosts.add(host);
    } catch {
      // no address
    }
  }
}

function define(target: object, name: string, value: unknown): void {
  Object.defineProperty(target, name, { value, configurable: true, writable: true, enumerable: true });
}
