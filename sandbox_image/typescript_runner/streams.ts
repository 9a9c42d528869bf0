/**
 * Standard output and error of the code, with a count of the bytes written.
 *
 * Messages on the control channel carry the counts, so that the supervisor knows which output precedes a message.
 */

import { Console } from "node:console";
import process from "node:process";
import { Writable } from "node:stream";

const encoder = new TextEncoder();
/** Levels of objects that `console.log` shows, as Deno does. */
const DEPTH = 4;

/** Both output streams of this process. */
export class StandardStreams {
  readonly #written = [0, 0];

  /** Make all ways to write go through this object. */
  install(): void {
    const [stdout, stderr] = [Deno.stdout, Deno.stderr].map((stream, index) => this.#count(stream, index));
    const options = { inspectOptions: { depth: DEPTH, colors: false } };
    const made = new Console({ stdout: toStream(stdout), stderr: toStream(stderr), ...options });
    const names = Object.keys(globalThis.console).filter((name) => name in made);
    for (const name of names) Reflect.set(globalThis.console, name, Reflect.get(made, name));
    replaceWrite(process.stdout, stdout);
    replaceWrite(process.stderr, stderr);
  }

  /** Return the bytes written to each stream. */
  countWritten(): number[] {
    return [...this.#written];
  }

  /** Count what a stream of Deno writes. Return how a whole text is written. */
  #count(stream: typeof Deno.stdout, index: number): (data: Uint8Array) => void {
    const writeSync = stream.writeSync.bind(stream);
    const write = (data: Uint8Array): number => {
      const size = writeSync(data);
      this.#written[index] += size;
      return size;
    };
    stream.writeSync = write;
    stream.write = (data: Uint8Array) => Promise.resolve(write(data));
    return (data) => {
      for (let rest = data; rest.length > 0;) rest = rest.subarray(write(rest));
    };
  }
}

function toBytes(data: string | Uint8Array): Uint8Array {
  return typeof data === "string" ? encoder.encode(data) : data;
}

function toStream(write: (data: Uint8Array) => void): Writable {
  return new Writable({
    decodeStrings: false,
    write(data: string | Uint8Array, _encoding: string, done: () => void): void {
      write(toBytes(data));
      done();
    },
  });
}

/** Make a stream of Node write at once. */
function replaceWrite(stream: unknown, write: (data: Uint8Array) => void): void {
  Object.defineProperty(stream, "write", {
    configurable: true,
    writable: true,
    value: (data: string | Uint8Array, ...options: unknown[]): boolean => {
      write(toBytes(data));
      const done = options.at(-1);
      if (typeof done === "function") queueMicrotask(() => done());
      return true;
    },
  });
}
