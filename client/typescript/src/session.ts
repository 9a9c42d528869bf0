/// <reference lib="esnext.disposable" preserve="true" />
/** Sessions: variables, imports and files that stay from one execution to the next. */
import type { Client, SubmitOptions, WaitOptions } from "./client.ts";
import { Conflict, NotFound } from "./errors.ts";
import type { NewSession, Run, Session } from "./types.ts";

/** Options of a new session. One that is not given has the gateway's default. */
export interface SessionOptions extends Omit<NewSession, "name" | "poolRef"> {
  /** Pool whose pod the session keeps. */
  pool?: string | undefined;
}

/** One session. With a name it stays until its limits end it; without one, `await using` deletes it. */
export class OpenSession implements AsyncDisposable {
  readonly name: string;
  readonly #client: Client;
  readonly #options: SessionOptions;
  readonly #keeps: boolean;
  #created: Promise<unknown> | undefined;

  constructor(client: Client, name: string | undefined, { keep, ...options }: SessionOptions & { keep?: boolean }) {
    this.name = name ?? `s-${crypto.randomUUID().replaceAll("-", "").slice(0, 12)}`;
    this.#client = client;
    this.#options = options;
    this.#keeps = keep ?? name !== undefined;
  }

  /** Run code in the session and return the execution at its end, as `run` of the client does. */
  async run(code: string, options: SubmitOptions & WaitOptions = {}): Promise<Run> {
    await this.#create();
    const { pool, language, user } = this.#options;
    return this.#client.run(code, { pool, language, user, ...options, session: this.name });
  }

  /** Return the session as it is now. */
  get(): Promise<Session> {
    return this.#client.getSession(this.name, this.#ofUser);
  }

  /** Let the session start afresh, with no variable and no file. */
  reset(): Promise<Session> {
    return this.#client.resetSession(this.name, this.#ofUser);
  }

  /** End the session and delete it; nothing happens if it does not exist. */
  async delete(): Promise<void> {
    await this.#client.deleteSession(this.name, this.#ofUser).catch(unless(NotFound));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#keeps) await this.delete();
  }

  get #ofUser() {
    return { query: { user: this.#options.user } };
  }

  /** Create the session if it has options: an execution would create it with the defaults. */
  async #create(): Promise<void> {
    if (Object.keys(this.#options).every((name) => name === "user")) return;
    const { pool, ...options } = this.#options;
    const body = { name: this.name, ...options, ...(pool === undefined ? {} : { poolRef: { name: pool } }) };
    this.#created ??= this.#client.createSession({ body }).catch(unless(Conflict));
    try {
      await this.#created;
    } catch (error) {
      this.#created = undefined;
      throw error;
    }
  }
}

function unless(kind: typeof NotFound | typeof Conflict): (error: unknown) => void {
  return (error) => {
    if (!(error instanceof kind)) throw error;
  };
}
