/** Results of tools: a plain value if there is one, else text and files, whose bytes stay on disk. */

import { Buffer } from "node:buffer";
import path from "node:path";
import { ToolProtocolError } from "./errors.ts";
import { findExtension } from "./media.ts";

/** Folder of the workspace that holds the bytes of results. */
const FOLDER = "tool_results";
const BASE64 = /^[A-Za-z0-9+/\s]*={0,2}\s*$/;
const BOUNDARY = /<(untrusted-data-[0-9A-Za-z-]{1,64})>/;
/** The boundary's name must occur within so many characters. */
const HEAD = 2000;

/** Bytes of a result in a file. */
export class ResultFile {
  readonly path: string;
  readonly mimeType: string;
  readonly size: number;

  constructor(fields: { path: string; mimeType: string; size: number }) {
    this.path = fields.path;
    this.mimeType = fields.mimeType;
    this.size = fields.size;
  }

  /** Return the bytes. */
  read(): Uint8Array {
    return Deno.readFileSync(this.path);
  }
}

/** Resource that a tool links to without sending it. */
export interface ResultLink {
  readonly uri: string;
  readonly name: string;
  readonly mimeType: string;
  readonly description: string;
  readonly title: string;
  readonly size: number | null;
}

/** Result with several parts: text, images, other files and links. */
export class ToolResult {
  text = "";
  readonly images: ResultFile[] = [];
  readonly blobs: ResultFile[] = [];
  readonly links: ResultLink[] = [];
  /** Structured content, if the tool sent any. Bytes that it repeats are replaced by the path of their file. */
  structured: unknown = null;

  /** Return the structured content, else the text as JSON. */
  json(): unknown {
    return this.structured ?? JSON.parse(this.text);
  }

  toString(): string {
    const files = [...this.images, ...this.blobs].map((file) => `[${file.mimeType}, ${file.size} bytes: ${file.path}]`);
    const links = this.links.map((link) => `[${link.name || "link"}: ${link.uri}]`);
    return [...(this.text ? [this.text] : []), ...files, ...links].join("\n");
  }
}

type Block = Record<string, unknown>;

/** Files of results in the workspace: 1.png, 2.pdf. */
export class ResultFiles {
  readonly #folder: string;
  #last = 0;

  constructor(workspace: string) {
    this.#folder = path.join(workspace, FOLDER);
  }

  /** Build a result of MCP content blocks. Blocks of unknown types become text. */
  build(content: readonly unknown[], structured: unknown): ToolResult {
    const result = new ToolResult();
    const texts: string[] = [];
    const paths = new Map<string, string>();
    for (const block of content) if (isBlock(block)) this.#add(block, result, texts, paths);
    result.text = texts.join("\n");
    result.structured = replaceBytes(structured ?? null, paths);
    return result;
  }

  #add(block: Block, result: ToolResult, texts: string[], paths: Map<string, string>): void {
    if (block.type === "text") texts.push(readText(block, "text"));
    else if (block.type === "image") result.images.push(this.#save(block, "data", paths));
    else if (block.type === "audio") result.blobs.push(this.#save(block, "data", paths));
    else if (block.type === "resource_link") result.links.push(readLink(block));
    else if (block.type === "resource") this.#addResource(block.resource, result, texts, paths);
    else texts.push(JSON.stringify(block));
  }

  #addResource(resource: unknown, result: ToolResult, texts: string[], paths: Map<string, string>): void {
    if (!isBlock(resource)) return;
    if (!("blob" in resource)) {
      texts.push(readText(resource, "text"));
      return;
    }
    const file = this.#save(resource, "blob", paths);
    (file.mimeType.startsWith("image/") ? result.images : result.blobs).push(file);
  }

  #save(block: Block, name: string, paths: Map<string, string>): ResultFile {
    const data = decode(block[name]);
    const mimeType = readText(block, "mimeType");
    Deno.mkdirSync(this.#folder, { recursive: true });
    for (;;) {
      this.#last += 1;
      const file = path.join(this.#folder, `${this.#last}.${findExtension(mimeType) ?? "bin"}`);
      try {
        Deno.writeFileSync(file, data, { createNew: true });
      } catch (error) {
        if (error instanceof Deno.errors.AlreadyExists) continue;
        throw error;
      }
      if (data.length > 0) paths.set(block[name] as string, file);
      return new ResultFile({ path: file, mimeType, size: data.length });
    }
  }
}

function isBlock(value: unknown): value is Block {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function readText(block: Block, name: string): string {
  const value = block[name];
  return typeof value === "string" ? value : "";
}

function readLink(block: Block): ResultLink {
  const { size } = block;
  return {
    uri: readText(block, "uri"),
    name: readText(block, "name"),
    mimeType: readText(block, "mimeType"),
    description: readText(block, "description"),
    title: readText(block, "title"),
    size: typeof size === "number" && Number.isInteger(size) && size >= 0 ? size : null,
  };
}

function decode(data: unknown): Uint8Array {
  if (typeof data !== "string") {
    throw new ToolProtocolError("the tool sent a file without bytes", { reason: "UnexpectedResult" });
  }
  if (!BASE64.test(data)) {
    throw new ToolProtocolError("the tool sent bytes that are not base64", { reason: "UnexpectedResult" });
  }
  return Buffer.from(data, "base64");
}

/** Replace base64 in the structured content by paths, because some servers repeat their blocks there. */
function replaceBytes(structured: unknown, paths: ReadonlyMap<string, string>): unknown {
  const root: Record<string, unknown> = { value: structured };
  const queue: Record<string, unknown>[] = paths.size > 0 ? [root] : [];
  for (let container = queue.pop(); container !== undefined; container = queue.pop()) {
    for (const [key, value] of Object.entries(container)) {
      const file = typeof value === "string" ? paths.get(value) : undefined;
      if (file !== undefined) container[key] = file;
      else if (typeof value === "object" && value !== null) queue.push(value as Record<string, unknown>);
    }
  }
  return root.value;
}

/** Return the value that a result contains, or the result itself if it does not have the format. */
export function readResult(format: string, value: unknown): unknown {
  if (format === "only_list") return readOnlyList(value);
  return format === "untrusted_data" ? readUntrustedData(value) : value;
}

/** Return the only list among the fields of an object. */
function readOnlyList(value: unknown): unknown {
  const lists = isBlock(value) ? Object.values(value).filter(Array.isArray) : [];
  return lists.length === 1 ? lists[0] : value;
}

/** Return the JSON between the boundaries that Supabase's server puts around data, which warn models. */
function readUntrustedData(value: unknown): unknown {
  const isWrapped = isBlock(value) && Object.keys(value).join() === "result";
  const text = isWrapped ? value.result : value;
  const name = typeof text === "string" ? BOUNDARY.exec(text.slice(0, HEAD))?.[1] : undefined;
  if (typeof text !== "string" || name === undefined) return value;
  const opening = `<${name}>\n`;
  const start = text.indexOf(opening);
  const end = text.lastIndexOf(`</${name}>`);
  if (start < 0 || end < start) return value;
  try {
    return JSON.parse(text.slice(start + opening.length, end));
  } catch {
    return value;
  }
}
