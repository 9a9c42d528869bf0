/** Rewritten text that knows where each of its characters comes from. */

/** A place in a text: lines count from 1, columns from 1. */
export interface Place {
  line: number;
  column: number;
}

/** Part of the new text: either a range of the original text, or text that was added at an original offset. */
interface Piece {
  text: string;
  origin: number;
  isAdded: boolean;
}

/** Offsets at which the lines of a text begin. */
export class Lines {
  readonly #starts: number[] = [0];

  constructor(text: string) {
    for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) this.#starts.push(at + 1);
  }

  /** Return the place of an offset. */
  locate(offset: number): Place {
    let low = 0;
    let high = this.#starts.length - 1;
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (this.#starts[middle] <= offset) low = middle;
      else high = middle - 1;
    }
    return { line: low + 1, column: offset - this.#starts[low] + 1 };
  }

  /** Return the offset of a place. */
  find({ line, column }: Place): number {
    const index = Math.min(Math.max(line, 1), this.#starts.length) - 1;
    return this.#starts[index] + column - 1;
  }
}

/** Changes of a text: replaced ranges, inserted texts, and ranges that move to the beginning. */
export class Edits {
  readonly #original: string;
  readonly #changes: { start: number; end: number; text: string }[] = [];
  readonly #head: (Piece | { start: number; end: number })[] = [];

  constructor(original: string) {
    this.#original = original;
  }

  /** Replace a range by a text. Ranges must not overlap; of two at the same place, the first stays the first. */
  replace(start: number, end: number, text: string): void {
    this.#changes.push({ start, end, text });
  }

  /** Add a text at the beginning. Errors in it are those of the statement at `origin`. */
  prepend(text: string, origin = 0): void {
    this.#head.push({ text, origin, isAdded: true });
  }

  /** Move a range to the beginning, with the changes in it, between two texts. */
  hoist(start: number, end: number, before: string, after: string): void {
    this.prepend(before, start);
    this.#head.push({ start, end });
    this.prepend(after, Math.max(start, end - 1));
  }

  /** Return the new text, and its places in the original. */
  apply(): Rewritten {
    this.#changes.sort((a, b) => a.start - b.start || a.end - b.end);
    const pieces: Piece[] = [];
    const moved: { start: number; end: number }[] = [];
    for (const part of this.#head) {
      if ("text" in part) {
        pieces.push(part);
      } else {
        pieces.push(...this.#cut(part.start, part.end));
        moved.push(part);
      }
    }
    let at = 0;
    for (const { start, end } of moved.sort((a, b) => a.start - b.start)) {
      pieces.push(...this.#cut(at, start));
      at = end;
    }
    pieces.push(...this.#cut(at, this.#original.length));
    return new Rewritten(this.#original, pieces.filter((piece) => piece.text !== ""));
  }

  /** Return the pieces of a range with its changes. */
  #cut(from: number, to: number): Piece[] {
    const pieces: Piece[] = [];
    let at = from;
    for (const { start, end, text } of this.#changes) {
      // An insertion at the border of two ranges belongs to the second.
      const isBehind = start === to && to < this.#original.length;
      if (start < at || end > to || isBehind) continue;
      pieces.push({ text: this.#original.slice(at, start), origin: at, isAdded: false });
      pieces.push({ text, origin: start, isAdded: true });
      at = end;
    }
    pieces.push({ text: this.#original.slice(at, to), origin: at, isAdded: false });
    return pieces;
  }
}

/** The new text of one that was changed. */
export class Rewritten {
  readonly text: string;
  readonly #original: Lines;
  readonly #lines: Lines;
  readonly #pieces: Piece[];
  readonly #ends: number[] = [];

  constructor(original: string, pieces: Piece[]) {
    this.text = pieces.map((piece) => piece.text).join("");
    this.#original = new Lines(original);
    this.#lines = new Lines(this.text);
    this.#pieces = pieces;
    let end = 0;
    for (const piece of pieces) this.#ends.push(end += piece.text.length);
  }

  /** Return the place in the original text of a place in the new one. */
  locate(place: Place): Place {
    const offset = this.#lines.find(place);
    let index = this.#ends.findIndex((end) => offset < end);
    if (index < 0) index = this.#pieces.length - 1;
    if (index < 0) return { line: 1, column: 1 };
    const piece = this.#pieces[index];
    const inside = piece.isAdded ? 0 : offset - (this.#ends[index] - piece.text.length);
    return this.#original.locate(piece.origin + inside);
  }
}
