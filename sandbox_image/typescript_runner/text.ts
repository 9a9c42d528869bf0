/** Bounded texts in the cut format of mcp_exec_tools/text.py, and paths of values. */

const KEY_CHARACTERS = 60;
const encoder = new TextEncoder();

/** Return the size of a text in UTF-8. */
export function countBytes(text: string): number {
  return encoder.encode(text).length;
}

/** Return the line that stands in place of `count` characters; null if their number is unknown. */
export function cutMarker(count: number | null): string {
  return count === null ? "\n[... the rest is cut ...]\n" : `\n[... ${count} characters cut ...]\n`;
}

/** Return the text, or if it has more than `limit` characters, its head and tail around a cut marker. */
export function shorten(text: string, limit: number): string {
  const characters = text.length <= limit ? null : [...text];
  if (characters === null || characters.length <= limit) return text;
  const room = limit - cutMarker(characters.length).length;
  if (2 * room < limit) return characters.slice(0, Math.max(limit, 0)).join("");
  const tail = Math.floor(room / 2);
  const head = characters.slice(0, room - tail).join("");
  return head + cutMarker(characters.length - room) + characters.slice(characters.length - tail).join("");
}

/** Return the text, or if it has more than `limit` characters, its beginning and an ellipsis. */
export function shortenLine(text: string, limit: number): string {
  if (text.length <= limit) return text;
  const characters = [...text];
  return characters.length <= limit ? text : characters.slice(0, limit - 1).join("") + "…";
}

/**
 * Shorten a text so that it has at most `limit` bytes as JSON.
 *
 * With `isHead`, the text is only the beginning of a value, so that its end is not worth keeping.
 */
export function shortenJsonText(text: string, limit: number, isHead: boolean): string {
  // More characters than this never fit, and a text of any size must cost no more than its bound.
  let known = isHead && text.length > limit ? text.slice(0, limit) : text;
  let length = limit - 2;
  for (;;) {
    const short = isHead ? keepHead(known, length) : shorten(known, length);
    const size = countBytes(JSON.stringify(short));
    if (size <= limit || short === "") return short;
    length = Math.min(length - 1, Math.floor((length * limit) / size));
    if (isHead) known = known.slice(0, Math.max(length, 0) + 1);
  }
}

function keepHead(text: string, limit: number): string {
  const room = limit - cutMarker(null).length;
  const kept = text.slice(0, Math.max(2 * room < limit ? limit : room, 0));
  const whole = kept.isWellFormed() ? kept : kept.slice(0, -1);
  return 2 * room < limit ? whole : whole + cutMarker(null);
}

/** Return the path of a part of a value: `result.rows[3].price`. */
export function formatPath(path: readonly (string | number)[], root: string): string {
  let text = root;
  for (const step of path) {
    if (typeof step === "number") text += `[${step}]`;
    else if (isName(step) && step.length <= KEY_CHARACTERS) text += text === "" ? step : `.${step}`;
    else text += `[${JSON.stringify(step.slice(0, KEY_CHARACTERS))}]`;
  }
  return text;
}

/** Return whether a text is an identifier. */
export function isName(text: string): boolean {
  return /^[\p{ID_Start}$_][\p{ID_Continue}$\u200c\u200d]*$/u.test(text);
}

/** Return up to `limit` known names nearest to a name, best first. */
export function findCloseNames(name: string, known: Iterable<string>, limit = 3): string[] {
  const wanted = fold(name.slice(0, 64));
  const found: [number, string][] = [];
  let count = 0;
  for (const other of known) {
    if ((count += 1) > 500) break;
    if (other.length > 64 || other === name) continue;
    const folded = fold(other);
    const distance = folded.includes(wanted) && wanted.length > 2 ? 1 : measureDistance(wanted, folded);
    if (distance <= Math.max(1, Math.floor(wanted.length * 0.4))) found.push([distance, other]);
  }
  found.sort(([a, x], [b, y]) => a - b || (x < y ? -1 : 1));
  return found.slice(0, limit).map(([, other]) => other);
}

/** Return the letters and digits of a name in lower case: all its spellings agree in them. */
export function fold(name: string): string {
  return [...name.normalize("NFKC").toLowerCase()].filter((c) => /[\p{L}\p{N}]/u.test(c)).join("");
}

/** Return the number of letters to insert, remove or replace. */
function measureDistance(one: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_, index) => index);
  for (let i = 1; i <= one.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= other.length; j += 1) {
      const change = row[j - 1] + (one[i - 1] === other[j - 1] ? 0 : 1);
      next.push(Math.min(row[j] + 1, next[j - 1] + 1, change));
    }
    row = next;
  }
  return row[other.length];
}
