/** Code in Markdown, as models send it: the blocks of the language run, and each line keeps its number. */

import { CodeSyntaxError } from "./syntax.ts";

const LANGUAGES = ["ts", "typescript", "js", "javascript", "mts", "mjs"];
const MARKS = ["```", "~~~"];
const MAX_LISTED = 5;

/** Code without Markdown, and a sentence about what was removed, if anything was. */
export interface PlainCode {
  code: string;
  change: string;
}

/** A fenced block: the indexes of the line that opens it and of its end. */
interface Block {
  opening: number;
  closing: number;
  language: string;
}

/**
 * Return the code of a text whose first line is a fence, or that has a fence and is no code.
 *
 * @throws CodeSyntaxError: all fences name other languages.
 */
export function removeFences(text: string, isCode: (text: string) => boolean): PlainCode {
  const lines = text.split("\n");
  const first = lines.find((line) => line.trim() !== "") ?? "";
  const blocks = findBlocks(lines);
  // A line of backticks is code, too: a template of a template.
  if (blocks.length === 0 || (readFence(first) === null && isCode(text))) return { code: text, change: "" };
  const chosen = chooseBlocks(blocks);
  const isKept = (index: number) => chosen.some((block) => block.opening < index && index < block.closing);
  const isFence = (index: number) => blocks.some((block) => index === block.opening || index === block.closing);
  const lost = lines.flatMap((
    line,
    index,
  ) => (line.trim() === "" || isKept(index) || isFence(index) ? [] : [index + 1]));
  const what = chosen.length === 1 ? "The Markdown fence was" : `The Markdown fences of ${chosen.length} blocks were`;
  const left = lost.length > 0 ? `, and the text outside did not run (${listLines(lost)})` : "";
  const code = lines.map((line, index) => (isKept(index) ? line : "")).join("\n");
  return { code, change: `${what} removed${left}.` };
}

function findBlocks(lines: readonly string[]): Block[] {
  const blocks: Block[] = [];
  let open: { opening: number; language: string; marks: string } | null = null;
  lines.forEach((line, index) => {
    const fence = readFence(line);
    if (fence === null) return;
    if (open === null) {
      open = { opening: index, language: fence.language, marks: fence.marks };
    } else if (fence.marks.startsWith(open.marks) && fence.language === "") {
      blocks.push({ ...open, closing: index });
      open = null;
    }
  });
  return open === null ? blocks : [...blocks, { ...open as Omit<Block, "closing">, closing: lines.length }];
}

function readFence(line: string): { marks: string; language: string } | null {
  const text = line.trim();
  if (!MARKS.some((marks) => text.startsWith(marks))) return null;
  const end = [...text].findIndex((character) => character !== text[0]);
  const rest = end < 0 ? "" : text.slice(end);
  if (rest.includes("`")) return null;
  return { marks: end < 0 ? text : text.slice(0, end), language: rest.trim().split(" ")[0].toLowerCase() };
}

function chooseBlocks(blocks: readonly Block[]): Block[] {
  const named = blocks.filter((block) => LANGUAGES.includes(block.language));
  const chosen = named.length > 0 ? named : blocks.filter((block) => block.language === "");
  if (chosen.length > 0) return chosen;
  const { language, opening } = blocks[0];
  const message = `the Markdown fence names ${language.slice(0, 40)}, and this sandbox runs TypeScript`;
  throw new CodeSyntaxError(message, { line: opening + 1, column: 1 });
}

function listLines(numbers: readonly number[]): string {
  const more = numbers.length > MAX_LISTED ? ", ..." : "";
  return `line${numbers.length > 1 ? "s" : ""} ${numbers.slice(0, MAX_LISTED).join(", ")}${more}`;
}
