/** The engine's REPL mode, over its inspector: top-level `await`, and variables that stay and can be declared again. */

import inspector from "node:inspector";

interface RemoteObject {
  type: string;
  value?: unknown;
  unserializableValue?: string;
  objectId?: string;
}

interface Evaluation {
  result: RemoteObject;
  exceptionDetails?: { exception?: RemoteObject };
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
   * Whatever a script awaits at its top level must be held (Hooks): once a collection of garbage finds that nothing can
   * end a script, the inspector answers in the middle of it, which ends the process.
   *
   * @throws what the script throws.
   */
  async run(text: string, url: string): Promise<void> {
    const { result, exceptionDetails } = await this.#post<Evaluation>("Runtime.evaluate", {
      expression: `${text}\n//# sourceURL=${url}`,
      replMode: true,
      awaitPromise: true,
      objectGroup: GROUP,
    });
    const held = await this.#take(exceptionDetails?.exception ?? result);
    if (exceptionDetails !== undefined) throw held.value;
  }

  /** Return a value of the engine, in an object, because it may be a promise. */
  async #take(remote: RemoteObject): Promise<{ value?: unknown }> {
    const { objectId, unserializableValue, value } = remote;
    const argument = objectId !== undefined
      ? { objectId }
      : unserializableValue !== undefined
      ? { unserializableValue }
      : { value };
    await this.#post("Runtime.callFunctionOn", {
      objectId: this.#holderId,
      functionDeclaration: "function (value) { this.value = value; }",
      arguments: [argument],
    });
    // The inspector would keep the value for its client.
    await this.#post("Runtime.releaseObjectGroup", { objectGroup: GROUP });
    const held = { value: this.#holder.value };
    this.#holder.value = undefined;
    return held;
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
