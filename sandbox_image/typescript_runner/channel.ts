/** Lines of JSON to and from the supervisor. */

import net from "node:net";
import { CONTROL_FD, type Message } from "./protocol.ts";

const LINE_BREAK = 10;
const end = Deno.exit;

/** The control channel. While it is released, it does not keep the event loop alive. */
export class Channel {
  readonly #socket = new net.Socket({ fd: CONTROL_FD, readable: true, writable: true });
  readonly #messages: Message[] = [];
  readonly #decoder = new TextDecoder();
  #parts: Uint8Array[] = [];
  #waiting: ((message: Message) => void) | null = null;
  readonly #answers = new Map<number, (message: Message) => void>();
  #asked = 0;

  constructor() {
    this.#socket.on("data", (data: Uint8Array) => this.#read(data));
    // The supervisor has ended: nothing is left to do.
    this.#socket.on("end", () => end(0));
    this.#socket.on("error", () => end(0));
  }

  /** Send one line. The line break before it ends whatever else was written to the descriptor. */
  send(message: Message): void {
    this.#socket.write(`\n${JSON.stringify(message)}\n`);
  }

  /** Return the next message. */
  receive(): Promise<Message> {
    this.#socket.ref();
    const message = this.#messages.shift();
    if (message !== undefined) return Promise.resolve(message);
    return new Promise((resolve) => (this.#waiting = resolve));
  }

  /** Send a request, and return the answer to it. */
  ask(request: Message): Promise<Message> {
    const id = (this.#asked += 1);
    this.send({ ...request, id });
    this.#socket.ref();
    return new Promise((resolve) => this.#answers.set(id, resolve));
  }

  /** Let the event loop end while it waits only for messages. */
  release(): void {
    this.#socket.unref();
  }

  /** Keep the event loop alive. */
  hold(): void {
    this.#socket.ref();
  }

  #read(data: Uint8Array): void {
    let start = 0;
    for (let end = data.indexOf(LINE_BREAK); end >= 0; end = data.indexOf(LINE_BREAK, start)) {
      this.#parts.push(data.subarray(start, end));
      this.#handle(this.#join());
      start = end + 1;
    }
    if (start < data.length) this.#parts.push(data.slice(start));
  }

  #join(): string {
    const parts = this.#parts;
    this.#parts = [];
    return parts.map((part, index) => this.#decoder.decode(part, { stream: index < parts.length - 1 })).join("");
  }

  #handle(line: string): void {
    if (line === "") return;
    const message = JSON.parse(line) as Message;
    if (message.type === "answer") {
      this.#answers.get(message.id as number)?.(message);
      this.#answers.delete(message.id as number);
      return;
    }
    const waiting = this.#waiting;
    this.#waiting = null;
    if (waiting === null) this.#messages.push(message);
    else waiting(message);
  }
}
