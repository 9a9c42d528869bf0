/** Changes that a conversion to JSON makes, as notes on results and refusals of arguments. */

import type { NoteKind } from "./protocol.ts";
import type { Notes } from "./notes.ts";
import { formatPath } from "./text.ts";

/** A sort of change: the note on a result, and why an argument of a tool is refused, if it is. */
export interface ValueChange {
  kind: NoteKind;
  note: string;
  refusal: string;
}

const change = (kind: NoteKind, note: string, refusal = ""): ValueChange => ({ kind, note, refusal });

export const NOT_FINITE = change(
  "ValueChanged",
  "JSON has no {what}, so this is null.",
  "is {what}, which JSON does not have: pass null, or leave it out",
);
export const NEGATIVE_ZERO = change("ValueChanged", "-0 is 0: the sign of a zero does not survive.");
export const UNSAFE_NUMBER = change(
  "ValueChanged",
  "A number beyond 2**53 is rounded by JavaScript itself: use a BigInt, or a text.",
);
export const INEXACT_INTEGER = change(
  "ValueChanged",
  "It is exact here, but clients that read numbers as doubles, such as JavaScript, round integers beyond 2**53.",
);
export const LONG_INTEGER = change("ValueChanged", "An integer of more than 64 bits is a text with all its digits.");
export const UNDEFINED = change(
  "ValueChanged",
  "JSON has no undefined, so this is null.",
  "is undefined, which JSON does not have: pass null, or leave it out",
);
export const SURROGATE = change(
  "ValueChanged",
  "A lone surrogate is no Unicode text, so it is written as its escape, such as \\ud800.",
  "has a lone surrogate, which is no Unicode text: pass text.toWellFormed()",
);
export const NO_FORM = change(
  "ValueChanged",
  "{what} has no JSON form, so this is its text. Return an object, an array or a text instead.",
  "is of type {what}, which has no JSON form: pass an object of its fields, or String(value)",
);
export const NOT_AWAITED = change(
  "ValueChanged",
  "A promise has no value before it is awaited: write `await`.",
  "is a promise: write `await`",
);
export const NO_BINARY_FORM = change(
  "ValueChanged",
  "JSON has no {what}, so this is its text. Return Array.from(bytes), or write a file in artifacts.",
  "is {what}, which JSON does not have: pass Array.from(bytes), or its base64",
);
export const INVALID_DATE = change("ValueChanged", "An invalid Date is null.", "is an invalid Date: pass null");
export const COLLIDED = change(
  "KeysCollided",
  "Another key of this object has the same text, so this one has a number after it.",
  "is a key whose text another key of the object has: pass keys with different texts",
);
export const NO_TEXT_KEY = change("ValueChanged", "", "has a key of type {what}: pass texts as keys");
export const SYMBOL_KEYS = change("ValueChanged", "Keys that are symbols are left out.", "has a key that is a symbol");
export const PARTLY_READ = change(
  "OutputCut",
  "Only the first {what} items were read from this iterator, and they are used up.",
  "has more than {what} items in its iterator: pass an array",
);
export const CYCLE = change("OutputCut", "It contains itself.", "contains itself");
export const TOO_DEEP = change("OutputCut", "It has more than {what} levels.", "has more than {what} levels");
export const FAILED = change("ValueChanged", "{what} was thrown by its code.", "threw {what} while it was converted");
export const LONG_TEXT = change("OutputCut", "Its text is cut in the middle.");

const MAX_MESSAGES = 32;

/** The changes of one conversion. Changes of one sort are one note, with the path of the first. */
export class Changes {
  readonly #root: string;
  readonly #found = new Map<string, { kind: NoteKind; note: string; path: string; count: number }>();

  constructor(root: string) {
    this.#root = root;
  }

  /** Record a change. */
  add(found: ValueChange, path: readonly (string | number)[], what: string): void {
    const note = found.note.replace("{what}", () => what);
    if (note === "") return;
    const key = `${found.kind} ${note}`;
    const known = this.#found.get(key);
    if (known !== undefined) known.count += 1;
    else if (this.#found.size < MAX_MESSAGES) {
      this.#found.set(key, { kind: found.kind, note, path: formatPath(path, this.#root), count: 1 });
    }
  }

  /** Add the changes to the notes of the run. */
  write(notes: Notes): void {
    for (const { kind, note, path, count } of this.#found.values()) {
      notes.add(kind, note + (count > 1 ? ` So in ${count} places.` : ""), path);
    }
  }
}
