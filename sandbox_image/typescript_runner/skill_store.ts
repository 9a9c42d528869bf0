/** Skills of this execution, as its job brought them. */

import type { SkillModule } from "./loader.ts";
import { type Emit, type JobSkills, SAVED_CODE_BYTES, SAVED_SKILLS, type SkillSource } from "./protocol.ts";
import { countBytes } from "./text.ts";

const NAME = /^[a-z][a-z0-9]*(-[a-z0-9]+)*$/;

/** A skill to save. */
export interface SkillDraft {
  name: string;
  code: string;
  description: string;
  tools: readonly string[];
  tags: readonly string[];
}

/** A skill that this execution may not use. */
export class SkillRefused extends Error {
  override readonly name = "SkillRefused";
}

/** The skills that an execution may import, and the list of those that it may search. */
export class SkillStore {
  readonly catalog: readonly Record<string, unknown>[];
  readonly #skills: JobSkills;
  readonly #allow: readonly string[];
  readonly #emit: Emit;
  #saved = 0;

  constructor(skills: JobSkills | null, allow: readonly string[], emit: Emit) {
    this.#skills = skills ?? { sources: {}, modules: {}, catalog: [] };
    this.catalog = this.#skills.catalog;
    this.#allow = allow;
    this.#emit = emit;
  }

  /**
   * Return the module of a skill by its name, `profile-table` or `profile_table`, or null if there is none.
   *
   * @throws SkillRefused: the execution may not call a tool that the skill needs.
   */
  find(name: string): SkillModule | null {
    const key = name.replaceAll("-", "_");
    const version = Object.hasOwn(this.#skills.modules, key) ? this.#skills.modules[key] : undefined;
    if (version === undefined) return null;
    const source = this.#skills.sources[version];
    const missing = this.#findMissing(source);
    if (missing.length === 0) return { name: version, code: source.code };
    throw new SkillRefused(
      `skill ${version} needs the tools ${missing.join(", ")}, which this execution may not call. ` +
        "The creator of the execution adds them to its spec.tools",
    );
  }

  /** Send a draft of a skill. */
  save(draft: SkillDraft): void {
    const { name, code, description, tools, tags } = draft;
    if (name.length > 50 || !NAME.test(name)) {
      const given = JSON.stringify(name.slice(0, 60));
      throw new TypeError(`name: ${given} must be lower-case letters and digits in words that '-' separates`);
    }
    if (description.trim() === "" || description.trim().length > 1024) {
      throw new TypeError("description: write what the skill does in 1 to 1024 characters");
    }
    const size = countBytes(code);
    if (size > SAVED_CODE_BYTES) {
      throw new RangeError(`code: it has ${size} bytes; at most ${SAVED_CODE_BYTES} are allowed`);
    }
    if (this.#saved >= SAVED_SKILLS) throw new RangeError(`one execution can save ${SAVED_SKILLS} skills`);
    this.#saved += 1;
    const words = { tools: tools.map(String), tags: tags.map(String) };
    this.#emit({ type: "skill", name, code, description: description.split(/\s+/).join(" ").trim(), ...words });
  }

  #findMissing(source: SkillSource): string[] {
    return source.tools.filter((wanted) => !this.#allow.some((pattern) => covers(pattern, wanted)));
  }
}

/** Return whether a pattern of tools matches everything that another one matches. */
function covers(pattern: string, wanted: string): boolean {
  const [server, tool] = split(pattern);
  const [wantedServer, wantedTool] = split(wanted);
  return coversName(server, wantedServer) && coversName(tool, wantedTool);
}

function split(pattern: string): [string, string] {
  const at = pattern.indexOf(".");
  return [pattern.slice(0, at), pattern.slice(at + 1)];
}

function coversName(pattern: string, wanted: string): boolean {
  return pattern.endsWith("*") ? wanted.startsWith(pattern.slice(0, -1)) : pattern === wanted;
}
