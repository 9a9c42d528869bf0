/** The engine's REPL mode, over its inspector: top-level `await`, and variables that stay and can be declared again. */

import inspector from "node:inspector";
import type { Place } from "./pieces.ts";

interface RemoteObject {
  type: string;
  value?: unknown;
  unserializableValue?: string;
  objectId?: string;
}

interface Evaluation {
  result: RemoteObject;
  exceptionDetails?: {
    exception?: RemoteObject;
    stackTrace?: { callFrames: { url: string; lineNumber: number; columnNumber: number }[] };
  };
}

/** What code threw, and the places of the calls that threw it, if the engine knows them. */
export class Thrown {
  readonly error: unknown;
  readonly places: readonly { url: string; place: Place }[];

  constructor(error: unknown, places: readonly { url: string; place: Place }[]) {
    this.error = error;
    this.places = places;
  }
}

const GROUP = "run";

/** Runs scripts in the global scope. */
export class Engine {
  readonly #session = new inspector.Session();
  readonly #holder: { value?: unknown } = {};
  #holderId = "";

  /** Connect. This needs a permission that no code has later. */
  async connect(): Promise<void> {
    this.#session.connect();
    const name = "__mcp_holder";
    Reflect.set(globalThis, name, this.#holder);
    const { result } = await this.#post<Evaluation>("Runtime.evaluate", { expression: name });
    Reflect.deleteProperty(globalThis, name);
    this.#holderId = result.objectId!;
  }

  /**
   * Run a script, whose frames have the URL, and wait for its end.
   *
   * @throws Thrown
   */
  async run(text: string, url: string): Promise<void> {
    const { exceptionDetails } = await this.#evaluate(`${text}\n//# sourceURL=${url}`);
    if (exceptionDetails === undefined) return await this.#release();
    const places = (exceptionDetails.stackTrace?.callFrames ?? []).map((frame) => ({
      url: frame.url,
      place: { line: frame.lineNumber + 1, column: frame.columnNumber + 1 },
    }));
    throw new Thrown(await this.#fetch(exceptionDetails.exception), places);
  }

  /** Return a value of the global scope, or undefined if it has none of the name. */
  async read(name: string): Promise<unknown> {
    const evaluated = await this.#evaluate(`typeof ${name} === "undefined" ? undefined : ${name}`);
    return evaluated.exceptionDetails === undefined ? await this.#fetch(evaluated.result) : undefined;
  }

  #evaluate(expression: string): Promise<Evaluation> {
    const options = { replMode: true, awaitPromise: true, objectGroup: GROUP };
    return this.#post<Evaluation>("Runtime.evaluate", { expression, ...options });
  }

  /** Let go of the values that the inspector keeps for its client. */
  async #release(): Promise<void> {
    await this.#post("Runtime.releaseObjectGroup", { objectGroup: GROUP });
  }

  async #fetch(remote: RemoteObject | undefined): Promise<unknown> {
    if (remote === undefined) return undefined;
    const { objectId, unserializableValue, value } = remote;
    await this.#post("Runtime.callFunctionOn", {
      objectId: this.#holderId,
      functionDeclaration: "function (value) { this.value = value; }",
      arguments: [
        objectId !== undefined ? { objectId } : unserializableValue !== undefined ? { unserializableValue } : { value },
      ],
    });
    await this.#release();
    const found = this.#holder.value;
    this.#holder.value = undefined;
    return found;
  }

  #post<T>(method: string, parameters: Record<string, unknown>): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#session.post(method, parameters, (error: Error | null, result?: object) => {
        if (error) reject(error);
        else resolve(result as T);
      });
    });
  }
}
