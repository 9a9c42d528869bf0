/**
 * Walk through a value that converts it to plain JSON within a budget of bytes.
 *
 * Values are hostile: getters throw, structures contain themselves, iterators do not end.
 */

import * as changes from "./changes.ts";
import type { ValueChange } from "./changes.ts";
import { isError } from "./report.ts";
import { shorten } from "./text.ts";

const MAX_DEPTH = 64;
const ITERATOR_MILLISECONDS = 2000;
const TEXT_CHARACTERS = 4096;
const WORD_COST = 4;
const MOST_SAFE = BigInt(Number.MAX_SAFE_INTEGER);
const MOST_INT64 = 2n ** 63n - 1n;
const LEAST_INT64 = -(2n ** 63n);

/** Plain JSON, in which integers of 64 bits are exact. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

const rawJson = (JSON as unknown as { rawJSON: (text: string) => Json }).rawJSON;
const isRawJson = (JSON as unknown as { isRawJSON: (value: unknown) => boolean }).isRawJSON;
const TypedArray = Object.getPrototypeOf(Uint8Array);
const now = performance.now.bind(performance);

/** A value that cannot be an argument of a tool. The text has its path. */
export class ValueRefused extends Error {}

/** One conversion: a budget of bytes, the path, and the containers that are being converted. */
export abstract class Walk {
  /** Whether the budget is used up, so that the converted value is only the beginning. */
  full = false;
  /** Whether a part is left out. */
  cut = false;
  protected readonly path: (string | number)[] = [];
  protected abstract readonly maxItems: number;
  #left: number;
  readonly #active = new Set<object>();
  #deadline = 0;

  constructor(limit: number) {
    this.#left = limit;
  }

  protected abstract report(change: ValueChange, what?: string): void;

  convert(value: unknown, depth = 0): Json {
    if (this.full) return null;
    const place = this.path.length;
    try {
      return this.#convertAny(value, depth);
    } catch (error) {
      if (error instanceof ValueRefused) throw error;
      this.path.length = place;
      const what = isError(error) ? String(error.name) : typeof error;
      this.report(changes.FAILED, what);
      return this.#text(`<${nameType(value)}: ${what} while it was converted>`);
    }
  }

  #convertAny(value: unknown, depth: number): Json {
    switch (typeof value) {
      case "string":
        return this.#text(value);
      case "number":
        return this.#number(value);
      case "bigint":
        return this.#integer(value);
      case "boolean":
        return this.#pay(value, WORD_COST);
      case "undefined":
        this.report(changes.UNDEFINED);
        return this.#pay(null, WORD_COST);
      case "symbol":
      case "function":
        return this.#noForm(value, typeof value === "symbol" ? "symbol" : nameFunction(value));
      default:
        return value === null ? this.#pay(null, WORD_COST) : this.#container(value as object, depth);
    }
  }

  #container(value: object, depth: number): Json {
    if (this.#active.has(value)) return this.#leaveOut("<cycle>", changes.CYCLE);
    if (depth >= MAX_DEPTH) {
      const text = `<${nameType(value)}: more than ${MAX_DEPTH} levels deep>`;
      return this.#leaveOut(text, changes.TOO_DEEP, String(MAX_DEPTH));
    }
    this.#active.add(value);
    try {
      return this.#structure(value, depth + 1);
    } finally {
      this.#active.delete(value);
    }
  }

  #structure(value: object, depth: number): Json {
    if (Array.isArray(value)) return this.#array(value, depth);
    if (value instanceof Map) return this.#object(value, depth);
    if (value instanceof Set) return this.#array(value, depth);
    if (value instanceof Date) return this.#date(value);
    if (value instanceof Number || value instanceof String || value instanceof Boolean || value instanceof BigInt) {
      return this.convert(value.valueOf(), depth);
    }
    if (value instanceof TypedArray) return this.#array(value as Iterable<unknown>, depth);
    if (value instanceof ArrayBuffer || value instanceof SharedArrayBuffer || value instanceof DataView) {
      this.report(changes.NO_BINARY_FORM, nameType(value));
      return this.#text(`<${nameType(value)} of ${value.byteLength} bytes>`);
    }
    if (value instanceof Promise) {
      this.report(changes.NOT_AWAITED);
      return this.#text("<promise>");
    }
    if (isRawJson(value)) return this.#pay(value as unknown as Json, WORD_COST);
    return this.#other(value, depth);
  }

  #other(value: object, depth: number): Json {
    const { toJSON } = value as { toJSON?: unknown };
    if (typeof toJSON === "function") return this.convert(toJSON.call(value, ""), depth);
    if (isError(value)) return this.#noForm(value, "an Error");
    const keys = Object.keys(value);
    const iterate = (value as { [Symbol.iterator]?: unknown })[Symbol.iterator];
    if (typeof iterate === "function" && keys.length === 0) {
      return this.#array(this.#read(value as Iterable<unknown>), depth);
    }
    const isPlain = keys.length > 0 || isRecord(value);
    if (!isPlain) return this.#noForm(value, nameType(value));
    if (Object.getOwnPropertySymbols(value).length > 0) this.report(changes.SYMBOL_KEYS);
    return this.#object(listFields(value, keys), depth);
  }

  #object(entries: Iterable<[unknown, unknown]>, depth: number): Json {
    // Without a prototype, so that the key `__proto__` is one like others.
    const result: Record<string, Json> = this.#pay(Object.create(null), 2);
    const counts = new Map<string, number>();
    for (const [key, value] of entries) {
      if (this.full) break;
      let name = typeof key === "string" ? key : this.#convertKey(key);
      this.path.push(name);
      name = this.#text(name);
      if (name in result) {
        let number = (counts.get(name) ?? 1) + 1;
        while (`${name} (${number})` in result) number += 1;
        counts.set(name, number);
        name = this.path[this.path.length - 1] = `${name} (${number})`;
        this.report(changes.COLLIDED);
      }
      result[name] = this.convert(value, depth);
      this.path.pop();
    }
    return result;
  }

  #convertKey(key: unknown): string {
    if (!["number", "boolean", "bigint"].includes(typeof key) && key !== null && !(key instanceof Date)) {
      this.report(changes.NO_TEXT_KEY, nameType(key));
    }
    const left = this.#left;
    this.#left = TEXT_CHARACTERS;
    const plain = this.convert(key, MAX_DEPTH / 2);
    this.#left = left;
    this.full = left < 0;
    return shorten(typeof plain === "string" ? plain : JSON.stringify(plain), TEXT_CHARACTERS);
  }

  #array(items: Iterable<unknown>, depth: number): Json {
    const result: Json[] = this.#pay([], 2);
    this.path.push(0);
    for (const item of items) {
      if (this.full) break;
      this.path[this.path.length - 1] = result.length;
      result.push(this.convert(item, depth));
    }
    this.path.pop();
    return result;
  }

  *#read(items: Iterable<unknown>): Generator<unknown> {
    this.#deadline ||= now() + ITERATOR_MILLISECONDS;
    let count = 0;
    for (const item of items) {
      if (count === this.maxItems || now() > this.#deadline) {
        this.cut = true;
        const place = this.path.pop()!;
        this.report(changes.PARTLY_READ, String(count));
        this.path.push(place);
        return;
      }
      count += 1;
      yield item;
    }
  }

  #number(value: number): Json {
    if (!Number.isFinite(value)) {
      this.report(changes.NOT_FINITE, String(value));
      return this.#pay(null, WORD_COST);
    }
    if (Object.is(value, -0)) this.report(changes.NEGATIVE_ZERO);
    if (Number.isInteger(value) && !Number.isSafeInteger(value) && Math.abs(value) < 1e21) {
      this.report(changes.UNSAFE_NUMBER);
    }
    return this.#pay(Object.is(value, -0) ? 0 : value, 1);
  }

  #integer(value: bigint): Json {
    if (value > MOST_INT64 || value < LEAST_INT64) return this.longInteger(value);
    if (value > MOST_SAFE || value < -MOST_SAFE) {
      if (BigInt(Number(value)) !== value) this.report(changes.INEXACT_INTEGER);
      return this.#pay(rawJson(String(value)), 16);
    }
    return this.#pay(Number(value), 1);
  }

  /** Return the form of an integer of more than 64 bits. */
  protected longInteger(value: bigint): Json {
    // The engine needs quadratic time for the digits.
    if (value.toString(16).length > 1 << 17) return this.#leaveOut("<a very long integer>", changes.LONG_TEXT);
    this.report(changes.LONG_INTEGER);
    return this.#text(String(value));
  }

  /** Return an integer whose digits are exact. */
  protected exactInteger(value: bigint): Json {
    const digits = String(value);
    return this.#pay(rawJson(digits), digits.length);
  }

  #date(value: Date): Json {
    if (Number.isNaN(value.getTime())) {
      this.report(changes.INVALID_DATE);
      return this.#pay(null, WORD_COST);
    }
    return this.#text(value.toISOString());
  }

  #noForm(value: unknown, what: string): Json {
    this.report(changes.NO_FORM, what);
    const text = typeof value === "object" && !isError(value)
      ? Deno.inspect(value, { colors: false, depth: 1 })
      : String(value);
    if (text.length > TEXT_CHARACTERS) return this.#leaveOut(shorten(text, TEXT_CHARACTERS), changes.LONG_TEXT);
    return this.#text(text);
  }

  #leaveOut(text: string, change: ValueChange, what = ""): string {
    this.report(change, what);
    this.cut = true;
    return this.#text(text);
  }

  #text(text: string): string {
    const kept = text.slice(0, Math.max(this.#left, 0));
    this.#pay(null, text.length + 2);
    if (kept.isWellFormed()) return kept;
    // The budget may have cut a pair.
    if (kept.length < text.length && text.isWellFormed()) return kept.slice(0, -1);
    this.report(changes.SURROGATE);
    return escapeSurrogates(kept);
  }

  #pay<T>(value: T, cost: number): T {
    this.#left -= cost;
    this.full ||= this.#left < 0;
    return value;
  }
}

function* listFields(value: object, keys: string[]): Generator<[string, unknown]> {
  for (const key of keys) {
    const field = (value as Record<string, unknown>)[key];
    // As JSON.stringify does it: a field that is undefined is none.
    if (field !== undefined) yield [key, field];
  }
}

function isRecord(value: object): boolean {
  const prototype = Object.getPrototypeOf(value);
  return prototype === null || prototype === Object.prototype ||
    Object.prototype.toString.call(value) === "[object Object]";
}

function nameType(value: unknown): string {
  if (typeof value !== "object" || value === null) return typeof value;
  const name = (Object.getPrototypeOf(value)?.constructor as { name?: unknown } | undefined)?.name;
  return typeof name === "string" && name !== "" ? name : "object";
}

function nameFunction(value: unknown): string {
  const { name } = value as { name?: unknown };
  return typeof name === "string" && name !== "" ? `the function ${name}` : "a function";
}

function escapeSurrogates(text: string): string {
  return [...text].map((c) => (c.isWellFormed() ? c : `\\u${c.charCodeAt(0).toString(16)}`)).join("");
}
