/** Places in TypeScript of places in the JavaScript that it was transformed to, by the map of the transformation. */

import type { Place } from "./pieces.ts";

const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const MARKER = "\n//# sourceMappingURL=data:application/json;base64,";

/** A line of the JavaScript: columns from 0 with their places in the source. */
type Segments = { column: number; place: Place }[];

/** Split transformed code and its map, which is a comment at its end. */
export function splitMap(code: string): { text: string; locate: (place: Place) => Place } {
  const at = code.lastIndexOf(MARKER);
  if (at < 0) return { text: code, locate: (place) => place };
  const map = JSON.parse(atob(code.slice(at + MARKER.length).trim())) as { mappings: string };
  const lines = decode(map.mappings);
  return { text: code.slice(0, at + 1), locate: (place) => find(lines, place) };
}

function find(lines: Segments[], { line, column }: Place): Place {
  for (let index = Math.min(line, lines.length) - 1; index >= 0; index -= 1) {
    const segments = lines[index];
    const last = index === line - 1 ? segments.findLast((segment) => segment.column < column) : segments.at(-1);
    const found = last ?? (index === line - 1 ? segments[0] : undefined);
    if (found !== undefined) return found.place;
  }
  return { line: 1, column: 1 };
}

function decode(mappings: string): Segments[] {
  let sourceLine = 0;
  let sourceColumn = 0;
  return mappings.split(";").map((line) => {
    let column = 0;
    const segments: Segments = [];
    for (const text of line === "" ? [] : line.split(",")) {
      const [ahead, , lines, columns] = readNumbers(text);
      column += ahead;
      if (lines === undefined) continue;
      sourceLine += lines;
      sourceColumn += columns;
      segments.push({ column, place: { line: sourceLine + 1, column: sourceColumn + 1 } });
    }
    return segments;
  });
}

/** Return the numbers of a segment: base 64, five bits a digit, the sign in the lowest bit. */
function readNumbers(text: string): number[] {
  const numbers: number[] = [];
  let value = 0;
  let shift = 0;
  for (const digit of text) {
    const bits = DIGITS.indexOf(digit);
    value += (bits & 31) << shift;
    shift += 5;
    if (bits & 32) continue;
    numbers.push(value & 1 ? -(value >> 1) : value >> 1);
    value = shift = 0;
  }
  return numbers;
}
