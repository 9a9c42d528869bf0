/** Values as results, which have notes on what the conversion changes, and as arguments of tools, which never change. */

import { Changes, type ValueChange } from "./changes.ts";
import type { Notes } from "./notes.ts";
import { describeCut } from "./report.ts";
import { countBytes, formatPath, shortenJsonText } from "./text.ts";
import { type Json, ValueRefused, Walk } from "./walk.ts";

const RESULT_ITEMS = 1000;
const ARGUMENT_ITEMS = 100_000;
const MAX_DIGITS = 4300;

class ResultWalk extends Walk {
  readonly changes = new Changes("result");
  protected readonly maxItems = RESULT_ITEMS;

  protected report(change: ValueChange, what = ""): void {
    this.changes.add(change, this.path, what);
  }
}

class ArgumentWalk extends Walk {
  protected readonly maxItems = ARGUMENT_ITEMS;

  protected report(change: ValueChange, what = ""): void {
    if (change.refusal === "") return;
    const place = formatPath(this.path, "") || "the arguments";
    throw new ValueRefused(`${place} ${change.refusal.replace("{what}", () => what)}`);
  }

  protected override longInteger(value: bigint): Json {
    if (value.toString(16).length > MAX_DIGITS * 0.83) {
      throw new ValueRefused(`${formatPath(this.path, "")} has more than ${MAX_DIGITS} digits: pass String(value)`);
    }
    return this.exactInteger(value);
  }
}

/** A JSON value of at most the requested size, and whether parts were left out. */
export interface JsonResult {
  value: unknown;
  truncated: boolean;
}

/** Convert a result. One of more than `limit` bytes of JSON becomes a text, and what is changed is added to the notes. */
export function convertToJson(value: unknown, limit: number, notes: Notes): JsonResult {
  const walk = new ResultWalk(limit);
  const plain = walk.convert(value);
  const text = typeof value === "string" && value.isWellFormed() ? value : plain;
  const json = JSON.stringify(text);
  const size = walk.full && typeof value !== "string" ? null : countBytes(json);
  walk.changes.write(notes);
  if (size !== null && size <= limit) return { value: plain, truncated: walk.cut };
  notes.add("OutputCut", describeCut(size, limit, typeof value === "string"), "result");
  return { value: shortenJsonText(typeof text === "string" ? text : json, limit, size === null), truncated: true };
}

/**
 * Encode the arguments of a tool as a JSON object. Nothing is changed. Return null if it has more than `limit` bytes.
 *
 * @throws ValueRefused
 */
export function encodeAsJson(value: Readonly<Record<string, unknown>>, limit: number): string | null {
  const walk = new ArgumentWalk(limit);
  const text = JSON.stringify(walk.convert(value));
  return walk.full || countBytes(text) > limit ? null : text;
}
