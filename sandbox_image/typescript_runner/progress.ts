/** Progress that code reports: `progress(3, 10, "read page 3")`. Any number of reports costs little. */

import { type Emit, type Message, PROGRESS_CHARACTERS } from "./protocol.ts";
import { shortenLine } from "./text.ts";

const INTERVAL_MILLISECONDS = 50;
/** Reports that are sent at once, before the interval applies. */
const BURST = 20;
const now = performance.now.bind(performance);
const [setTimer, clearTimer] = [setTimeout, clearTimeout];

/** Sender of progress events, bounded in rate. The newest report is never dropped. */
export class ProgressReporter {
  readonly #emit: Emit;
  #tokens = BURST;
  #refilled = now();
  #pending: Message | null = null;
  #timer: ReturnType<typeof setTimeout> | null = null;

  constructor(emit: Emit) {
    this.#emit = emit;
  }

  /** Send a report, or keep it until the interval is over. */
  report(done: unknown, total: unknown, text: unknown): void {
    this.#pending = {
      type: "progress",
      done: toNumber("done", done),
      total: total === undefined || total === null ? null : toNumber("total", total),
      text: shortenLine(String(text ?? ""), PROGRESS_CHARACTERS).toWellFormed(),
    };
    const time = now();
    this.#tokens = Math.min(this.#tokens + (time - this.#refilled) / INTERVAL_MILLISECONDS, BURST);
    this.#refilled = time;
    if (this.#tokens >= 1) {
      this.#tokens -= 1;
      this.flush();
    } else if (this.#timer === null) {
      this.#timer = setTimer(() => this.flush(), INTERVAL_MILLISECONDS);
    }
  }

  /** Send the newest report if it was not sent. */
  flush(): void {
    if (this.#timer !== null) clearTimer(this.#timer);
    this.#timer = null;
    const event = this.#pending;
    this.#pending = null;
    if (event !== null) this.#emit(event);
  }
}

function toNumber(name: string, value: unknown): number {
  const number = typeof value === "bigint" ? Number(value) : value;
  if (typeof number === "number" && Math.abs(number) <= 2 ** 53) return number;
  const given = typeof number === "number" && Number.isFinite(number)
    ? "one beyond 2**53"
    : Deno.inspect(value).slice(0, 50);
  throw new TypeError(`progress(done, total, text): ${name} must be a number, not ${given}`);
}
