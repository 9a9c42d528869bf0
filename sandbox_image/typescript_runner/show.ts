/**
 * Function `show`: values as files in the folder of artifacts.
 *
 * Each has bytes, a media type, and a short text for a model that can't see the bytes.
 */

import path from "node:path";
import { detectType, findExtension } from "./media.ts";
import { ARTIFACT_TEXT_CHARACTERS, ARTIFACTS_FOLDER, type Emit, PREVIEW_CHARACTERS } from "./protocol.ts";
import { shorten, shortenLine } from "./text.ts";

const MAX_PATH = 255;
const MAX_ROWS = 500;
const MAX_COLUMNS = 50;
const PREVIEW_ROWS = 10;
const PREVIEW_COLUMNS = 12;
const encoder = new TextEncoder();

/** How a value is shown. */
export interface ShowOptions {
  /** Name of the file, for example `sales.svg`. A second file of this name replaces the first one. */
  readonly name?: string;
  /** One line that says what it is. */
  readonly title?: string;
  /** Media type of text or bytes, for example `text/csv`. */
  readonly mediaType?: string;
}

interface Rendering {
  /** First part of its name if the code gives none. */
  kind: string;
  data: Uint8Array | null;
  mediaType: string;
  preview: string;
  /** File that has the bytes, in place of `data`. */
  source: string;
}

/** Writer of the artifacts of one run. */
export class ArtifactWriter {
  readonly #folder: string;
  readonly #emit: Emit;

  constructor(workspace: string, emit: Emit) {
    this.#folder = path.join(workspace, ARTIFACTS_FOLDER);
    this.#emit = emit;
  }

  /** Write a value to a file, and send its description. */
  show(value: unknown, options: ShowOptions): void {
    const rendering = render(value, options.mediaType);
    Deno.mkdirSync(this.#folder, { recursive: true });
    const target = this.#choosePath(rendering, options.name);
    if (rendering.data !== null) Deno.writeFileSync(target, rendering.data);
    else if (path.resolve(rendering.source) !== target) Deno.copyFileSync(rendering.source, target);
    this.#emit({
      type: "artifact",
      path: path.basename(target),
      title: shortenLine(String(options.title ?? ""), ARTIFACT_TEXT_CHARACTERS).toWellFormed(),
      preview: shorten(rendering.preview, PREVIEW_CHARACTERS).toWellFormed(),
      ...(rendering.mediaType === "" ? {} : { mediaType: rendering.mediaType }),
    });
  }

  #choosePath(rendering: Rendering, name: string | undefined): string {
    const extension = rendering.source
      ? path.extname(rendering.source).slice(1)
      : findExtension(rendering.mediaType) ?? "bin";
    if (name !== undefined) return path.join(this.#folder, checkName(name, extension));
    if (rendering.source) return path.join(this.#folder, path.basename(rendering.source));
    for (let number = 1;; number += 1) {
      const file = path.join(this.#folder, `${rendering.kind}-${number}.${extension}`);
      if (!exists(file)) return file;
    }
  }
}

function render(value: unknown, mediaType = ""): Rendering {
  if (value instanceof Uint8Array || value instanceof ArrayBuffer) {
    const data = value instanceof Uint8Array ? value : new Uint8Array(value);
    return build("file", data, mediaType || detectType(data), "");
  }
  if (typeof value === "string" && isFile(value)) return { ...build("", null, mediaType, ""), source: value };
  if (typeof value === "string") return build("text", encoder.encode(value), mediaType || "text/plain", value);
  const rows = readRows(value);
  if (rows !== null) return renderTable(rows);
  const text = writeJson(value);
  if (text !== undefined) return build("data", encoder.encode(text), "application/json", text);
  const shown = Deno.inspect(value, { colors: false });
  return build("text", encoder.encode(shown), "text/plain", shown);
}

function build(kind: string, data: Uint8Array | null, mediaType: string, preview: string): Rendering {
  return { kind, data, mediaType, preview, source: "" };
}

/** Return plain data as JSON, or undefined if the value has none. */
function writeJson(value: unknown): string | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  try {
    return JSON.stringify(value, (_, field) => (typeof field === "bigint" ? String(field) : field), 2);
  } catch {
    return undefined;
  }
}

type Row = Record<string, unknown>;

/** Return a list of objects with plain fields, which is shown as a table, or null for any other value. */
function readRows(value: unknown): Row[] | null {
  const isTable = Array.isArray(value) && value.length > 0 && value.slice(0, MAX_ROWS).every(isRow);
  return isTable ? (value as Row[]) : null;
}

function isRow(value: unknown): boolean {
  const isObject = typeof value === "object" && value !== null && Object.getPrototypeOf(value) === Object.prototype;
  return isObject && Object.values(value).every((cell) => typeof cell !== "object" || cell === null);
}

function renderTable(rows: Row[]): Rendering {
  const columns = [...new Set(rows.slice(0, MAX_ROWS).flatMap((row) => Object.keys(row)))];
  const shown = columns.slice(0, MAX_COLUMNS);
  const size = `${rows.length} rows x ${columns.length} columns`;
  const isCut = rows.length > MAX_ROWS || columns.length > MAX_COLUMNS;
  const cut = isCut ? `<p>${size}; ${Math.min(rows.length, MAX_ROWS)} x ${shown.length} are shown</p>` : "";
  const body = rows.slice(0, MAX_ROWS).map((row) => writeRow(shown.map((name) => row[name]), "td"));
  const html = `<table><thead>${writeRow(shown, "th")}</thead>\n<tbody>${body.join("\n")}</tbody></table>${cut}`;
  const head = columns.slice(0, PREVIEW_COLUMNS);
  const lines = rows.slice(0, PREVIEW_ROWS).map((row) =>
    head.map((name) => writeCell(row[name]).slice(0, 60)).join("\t")
  );
  const document = `<!doctype html><meta charset="utf-8">\n${html}`;
  return build("table", encoder.encode(document), "text/html", [size, head.join("\t"), ...lines].join("\n"));
}

function writeRow(cells: readonly unknown[], tag: string): string {
  return `<tr>${cells.map((cell) => `<${tag}>${escape(writeCell(cell))}</${tag}>`).join("")}</tr>`;
}

function writeCell(cell: unknown): string {
  return cell === undefined || cell === null ? "" : String(cell);
}

function escape(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}

function checkName(name: unknown, extension: string): string {
  const isName = typeof name === "string" && name !== "" && name.length <= ARTIFACT_TEXT_CHARACTERS;
  if (!isName || name.includes("/") || name.includes("\0") || name === "." || name === "..") {
    const given = Deno.inspect(name).slice(0, 100);
    throw new TypeError(`show(value, {name}): name is a file name such as "sales.svg", without a folder, not ${given}`);
  }
  const hasExtension = name.slice(1).includes(".");
  return hasExtension || extension === "" ? name : `${name}.${extension}`;
}

function isFile(text: string): boolean {
  if (text === "" || text.length > MAX_PATH || text.includes("\n") || text.includes("\0")) return false;
  try {
    return Deno.statSync(text).isFile;
  } catch {
    return false;
  }
}

function exists(file: string): boolean {
  try {
    Deno.lstatSync(file);
    return true;
  } catch {
    return false;
  }
}
