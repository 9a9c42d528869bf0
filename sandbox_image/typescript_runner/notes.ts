/** The notes of one run, in their order, without repetitions. What does not fit is counted by a last note. */

import { MAX_NOTES, type Note, NOTE_CHARACTERS, type NoteKind } from "./protocol.ts";
import { shortenLine } from "./text.ts";

/** Collects notes. */
export class Notes {
  readonly #notes: Note[] = [];
  #dropped = 0;

  /** Add a note: one sentence, and for a note on a value, its path. */
  add(kind: NoteKind, message: string, path = ""): void {
    const note = { kind, path: shortenLine(path, NOTE_CHARACTERS), message: shortenLine(message, NOTE_CHARACTERS) };
    const isKnown = this.#notes.some((n) => n.kind === kind && n.path === note.path && n.message === note.message);
    if (isKnown) return;
    if (this.#notes.length < MAX_NOTES) this.#notes.push(note);
    else this.#dropped += 1;
  }

  /** Return the notes, at most `MAX_NOTES`. */
  toMessage(): Note[] {
    if (this.#dropped === 0) return [...this.#notes];
    const message = `${this.#dropped + 1} more notes do not fit here.`;
    return [...this.#notes.slice(0, MAX_NOTES - 1), { kind: "NotesDropped", path: "", message }];
  }
}
