/**
 * Imports of the agent's code: its tools, modules of the workspace, skills, and those of Node that Deno has.
 *
 * Deno's own imports know neither the short names of the tools nor what a sandbox lacks.
 */

import { isBuiltin } from "node:module";
import path from "node:path";
import { compileModule, type ModuleCode } from "./module.ts";
import { SERVERS_FOLDER, SKILLS_FOLDER } from "./protocol.ts";
import { findCloseNames, fold } from "./text.ts";

/** A namespace of a module. */
export type Namespace = Record<string, unknown>;

/** An import of what the sandbox does not have. */
export class ModuleNotFoundError extends Error {
  override readonly name = "ModuleNotFoundError";
}

/** Code of a skill's module, and the name of its file. */
export interface SkillModule {
  name: string;
  code: string;
}

const REMOTE = ["npm:", "jsr:", "http:", "https:"];
const EXTENSIONS = ["", ".ts", ".js", ".mts", ".mjs", ".json", "/mod.ts", "/index.ts"];
const MAX_LISTED = 40;

/** Finds and loads modules. */
export class Loader {
  readonly #workspace: string;
  readonly #own: ReadonlyMap<string, Namespace>;
  readonly #modules = new Map<string, Promise<Namespace>>();
  readonly #loading = new Map<string, Set<string>>();
  /** Code by the URL that the engine knows it by, for the frames of errors. */
  readonly #codes = new Map<string, { file: string; code: ModuleCode }>();
  #findSkill: (name: string) => SkillModule | null = () => null;
  /** Names of the servers that the code may use; null if they are not known. */
  #servers: string[] | null = null;

  /** Prepare. `own` are the sandbox's modules by the names that code imports. */
  constructor(workspace: string, own: ReadonlyMap<string, Namespace>) {
    this.#workspace = workspace;
    this.#own = own;
  }

  /** Begin a job. */
  begin(servers: string[] | null, findSkill: (name: string) => SkillModule | null): void {
    this.#servers = servers;
    this.#findSkill = findSkill;
    for (const key of [...this.#modules.keys()]) if (key.startsWith("skill:")) this.#modules.delete(key);
  }

  /** Return the file of the agent and the places of its lines, by the URL of a frame. */
  find(url: string): { file: string; code: ModuleCode } | undefined {
    return this.#codes.get(url);
  }

  /**
   * Import a module, which must export the names.
   *
   * @throws ModuleNotFoundError, SyntaxError and what the module throws.
   */
  async import(specifier: string, names: readonly string[], referrer: string): Promise<Namespace> {
    const namespace = specifier === SERVERS_FOLDER
      ? await this.#loadServers(names)
      : await this.load(specifier, referrer);
    for (const name of names) {
      if (name in namespace) continue;
      const close = findCloseNames(name, Object.keys(namespace));
      const hint = close.length > 0
        ? `did you mean ${close.join(", ")}?`
        : `it has ${listNames(Object.keys(namespace))}`;
      throw new SyntaxError(`the module ${JSON.stringify(specifier)} has no export ${name}: ${hint}`);
    }
    return namespace;
  }

  /** Import a module from the file `referrer`. */
  load(specifier: string, referrer: string): Promise<Namespace> {
    const own = this.#own.get(specifier);
    if (own !== undefined) return Promise.resolve(own);
    if (specifier.startsWith(`${SKILLS_FOLDER}/`)) return this.#loadSkill(specifier, referrer);
    if (specifier === SERVERS_FOLDER) return this.#loadServers([]);
    if (specifier.startsWith(`${SERVERS_FOLDER}/`)) return this.#loadServer(specifier);
    if (/^(\.{0,2}\/|file:)/.test(specifier)) return this.#loadFile(resolvePath(specifier, referrer), referrer);
    if (isBuiltin(specifier)) return import(specifier.startsWith("node:") ? specifier : `node:${specifier}`);
    if (specifier.startsWith("data:") || specifier.startsWith("blob:")) return import(specifier);
    return Promise.reject(this.#explainMissing(specifier));
  }

  #explainMissing(specifier: string): ModuleNotFoundError {
    const what = REMOTE.some((prefix) => specifier.startsWith(prefix))
      ? "no network and no packages"
      : "no such module";
    const servers = this.#servers?.length ? `, and the servers ${listNames(this.#servers)} as "servers/NAME"` : "";
    return new ModuleNotFoundError(
      `cannot import ${
        JSON.stringify(specifier.slice(0, 100))
      }: this sandbox has ${what}; it has Deno ${Deno.version.deno}` +
        ` with the modules of Node ("node:fs"), ${
          listNames([...this.#own.keys()].map((name) => JSON.stringify(name)))
        }${servers}`,
    );
  }

  /** Return the namespaces of servers by their names; of all servers if no names are given. */
  async #loadServers(names: readonly string[]): Promise<Namespace> {
    const wanted = names.length > 0 ? names : listFolders(path.join(this.#workspace, SERVERS_FOLDER));
    const load = async (name: string) => [name, await this.#loadServer(`${SERVERS_FOLDER}/${name}`)] as const;
    return Object.fromEntries(await Promise.all(wanted.map(load)));
  }

  // deno-lint-ignore require-await -- what it throws is a rejection
  async #loadServer(specifier: string): Promise<Namespace> {
    const root = path.join(this.#workspace, SERVERS_FOLDER);
    const [, server, ...rest] = specifier.split("/");
    const folders = listFolders(root);
    const found = folders.find((each) => each === server) ?? folders.find((each) => fold(each) === fold(server));
    if (found === undefined) throw this.#explainServer(server, folders);
    const file = findFile(path.join(root, found, ...(rest.length > 0 ? rest : ["mod.js"])));
    if (file === null) throw new ModuleNotFoundError(`there is no module ${JSON.stringify(specifier.slice(0, 100))}`);
    return import(toUrl(file));
  }

  #explainServer(server: string, folders: string[]): ModuleNotFoundError {
    const close = findCloseNames(server, folders);
    const hint = close.length > 0
      ? `. Did you mean: ${close.join(", ")}?`
      : `; servers with tools: ${listNames(folders)}`;
    return new ModuleNotFoundError(`there is no server ${server.slice(0, 100)}${hint}`);
  }

  #loadSkill(specifier: string, referrer: string): Promise<Namespace> {
    const name = specifier.slice(SKILLS_FOLDER.length + 1);
    const file = findFile(path.join(this.#workspace, specifier));
    try {
      const skill = this.#findSkill(name);
      if (skill === null) {
        if (file !== null) return this.#loadFile(file, referrer);
        throw new ModuleNotFoundError(`there is no skill ${name.slice(0, 100)} that this execution may use`);
      }
      const place = path.join(this.#workspace, SKILLS_FOLDER, `${skill.name}.ts`);
      return this.#load(`skill:${skill.name}`, place, referrer, () => skill.code);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  #loadFile(file: string, referrer: string): Promise<Namespace> {
    const found = findFile(file);
    if (found === null) {
      return Promise.reject(new ModuleNotFoundError(`there is no module ${file.slice(0, 200)}`));
    }
    // Wrappers only import each other and the client, by names that Deno's import map has.
    if (found.startsWith(path.join(this.#workspace, SERVERS_FOLDER) + path.sep)) return import(toUrl(found));
    return this.#load(found, found, referrer, () => Deno.readTextFileSync(found));
  }

  #load(key: string, file: string, referrer: string, read: () => string): Promise<Namespace> {
    if (this.#isWaitedFor(file, referrer)) {
      return Promise.reject(
        new SyntaxError(`${file} imports itself, over ${referrer}: import it inside of a function`),
      );
    }
    let loaded = this.#modules.get(key);
    if (loaded === undefined) {
      loaded = this.#evaluate(file, read);
      this.#modules.set(key, loaded);
      const forget = () => this.#loading.delete(file);
      // A module that failed may be loaded again once it is corrected.
      loaded.then(forget, () => {
        forget();
        this.#modules.delete(key);
      });
    }
    return loaded;
  }

  async #evaluate(file: string, read: () => string): Promise<Namespace> {
    if (file.endsWith(".json")) return { default: JSON.parse(read()) };
    const code = await compileModule(read(), file, async (specifier) => Object.keys(await this.load(specifier, file)));
    const url = URL.createObjectURL(new Blob([code.text], { type: "text/javascript" }));
    this.#codes.set(url, { file, code });
    try {
      return await import(url);
    } finally {
      URL.revokeObjectURL(url);
    }
  }

  /** Note that `referrer` waits for `file`, and return whether `file` waits for it already. */
  #isWaitedFor(file: string, referrer: string): boolean {
    const waiting = this.#loading.get(referrer) ?? new Set();
    this.#loading.set(referrer, waiting.add(file));
    const seen = new Set<string>();
    const open = [file];
    while (open.length > 0) {
      const next = open.pop()!;
      if (next === referrer) return true;
      if (seen.has(next)) continue;
      seen.add(next);
      open.push(...(this.#loading.get(next) ?? []));
    }
    return false;
  }
}

function resolvePath(specifier: string, referrer: string): string {
  const file = specifier.startsWith("file:") ? decodeURIComponent(new URL(specifier).pathname) : specifier;
  return path.resolve(path.dirname(referrer), file);
}

function toUrl(file: string): string {
  return new URL(`file://${file.split(path.sep).map(encodeURIComponent).join("/")}`).href;
}

function findFile(file: string): string | null {
  for (const extension of EXTENSIONS) {
    try {
      if (Deno.statSync(file + extension).isFile) return file + extension;
    } catch {
      // the next name
    }
  }
  return null;
}

function listFolders(root: string): string[] {
  try {
    return [...Deno.readDirSync(root)].filter((entry) => entry.isDirectory).map((entry) => entry.name).sort();
  } catch {
    return [];
  }
}

function listNames(names: readonly string[]): string {
  const more = names.length > MAX_LISTED ? ", ..." : "";
  return names.length > 0 ? names.slice(0, MAX_LISTED).join(", ") + more : "none";
}
