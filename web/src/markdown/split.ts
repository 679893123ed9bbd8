// Divides Markdown into blocks while it arrives. A finished block never changes, so a renderer
// handles each one once, and the cost of a stream is linear in its length. Where a block ends
// depends on the text only, not on the pieces in which it came.

export interface Block {
  kind: "text" | "code" | "math";
  text: string;
  language: string;
  /** True for the rest of a paragraph whose beginning is the block before. */
  joins: boolean;
}

type Mode = "none" | "paragraph" | "list" | "quote" | "table" | "code" | "math";

/** A paragraph is cut from this length on, outside of emphasis, code, links and formulas. */
const CUT = 2048;
/** It is cut anywhere at this length. */
const FORCED_CUT = 8192;
/** A list is divided between its items from this length on. */
const LONG_LIST = 4096;

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/;
const ITEM = /^ {0,3}(?:([-*+])|\d{1,9}([.)]))(?:[ \t]|$)/;
const HEADING = /^ {0,3}#{1,6}(?:[ \t]|$)/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const NO_PARAGRAPH = /^ {0,3}(?:>|#{1,6}[ \t]|```|~~~)|^\s*(?:\$\$|\\\[|\|)/;
const UNDERLINE = /^ {0,3}(?:-{2,}|=+)[ \t]*$/;
const TABLE_RULE = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

export class Splitter {
  /** Finished blocks. */
  readonly blocks: Block[] = [];
  private mode: Mode = "none";
  /** Where the block begins that is not finished. */
  private start = 0;
  /** Where the first line begins that is not complete. */
  private position = 0;
  private joins = false;
  private fence = "";
  private language = "";
  private list = "";
  private afterBlank = false;
  private lines = 0;

  /** Takes the text so far, of which the text at the last call is the beginning. */
  advance(text: string): void {
    for (let end = text.indexOf("\n", this.position); end >= 0; end = text.indexOf("\n", this.position)) {
      const line = text.slice(this.position, end).replace(/\r$/, "");
      this.line(text, line, this.position, end + 1);
      this.position = end + 1;
      this.cut(text, this.position);
    }
    this.cut(text, text.length);
  }

  /** The block that is not finished. */
  open(text: string): Block | null {
    const rest = text.slice(this.start);
    if (!rest.trim() && this.mode !== "code") return null;
    const kind = this.mode === "code" || this.mode === "math" ? this.mode : "text";
    return { kind, text: rest, language: this.language, joins: this.joins };
  }

  private close(text: string, end: number, next: number, kind: Block["kind"] = "text"): void {
    const block = text.slice(this.start, end);
    if (block.trim() || kind === "code") {
      this.blocks.push({ kind, text: block, language: this.language, joins: this.joins });
    }
    this.mode = "none";
    this.start = next;
    this.joins = false;
    this.language = "";
    this.fence = "";
    this.afterBlank = false;
    this.lines = 0;
  }

  private line(text: string, line: string, begin: number, end: number): void {
    switch (this.mode) {
      case "code":
        if (isClosing(line, this.fence)) this.close(text, begin, end, "code");
        return;
      case "math":
        if (line.trimEnd().endsWith(this.fence)) {
          this.close(text, begin + line.lastIndexOf(this.fence), end, "math");
        }
        return;
      case "list":
        if (this.continuesList(text, line, begin)) return;
        break;
      case "quote":
      case "table":
        if (!line.trim()) return this.close(text, begin, end);
        return;
      case "paragraph":
        if (!line.trim()) return this.close(text, begin, end);
        if (UNDERLINE.test(line)) return this.close(text, end, end);
        this.lines += 1;
        if (this.lines === 1 && TABLE_RULE.test(line) && text.slice(this.start, begin).includes("|")) {
          this.mode = "table";
          return;
        }
        if (!interrupts(line)) return;
        this.close(text, begin, begin);
        break;
      default:
    }
    this.begin(text, line, begin, end);
  }

  private begin(text: string, line: string, begin: number, end: number): void {
    this.start = begin;
    const fence = FENCE.exec(line);
    const trimmed = line.trim();
    if (!trimmed) {
      this.start = end;
    } else if (fence) {
      this.mode = "code";
      this.fence = fence[1] ?? "";
      this.language = fence[2]?.trim().split(/\s/)[0] ?? "";
      this.start = end;
    } else if (opensMath(trimmed)) {
      this.mode = "math";
      this.fence = trimmed.startsWith("$$") ? "$$" : "\\]";
      this.start = begin + line.indexOf(trimmed) + 2;
      if (trimmed.length > 3 && trimmed.endsWith(this.fence)) {
        this.close(text, begin + line.lastIndexOf(this.fence), end, "math");
      }
    } else if (HEADING.test(line) || RULE.test(line)) {
      this.close(text, end, end);
    } else if (ITEM.test(line)) {
      this.mode = "list";
      this.list = listKind(line);
    } else {
      this.mode = /^ {0,3}>/.test(line) ? "quote" : "paragraph";
    }
  }

  /** Returns true if a line belongs to the list, which it may divide. */
  private continuesList(text: string, line: string, begin: number): boolean {
    if (this.fence) {
      if (isClosing(line.trim(), this.fence)) this.fence = "";
      return true;
    }
    if (!line.trim()) {
      this.afterBlank = true;
      return true;
    }
    const isItem = ITEM.test(line) && !RULE.test(line);
    const isSame = isItem && listKind(line) === this.list;
    const isIndented = /^(?: {2,}|\t)/.test(line);
    if (isSame) {
      this.afterBlank = false;
      if (begin - this.start > LONG_LIST) {
        this.close(text, begin, begin);
        this.mode = "list";
      }
      return true;
    }
    if (isIndented) {
      this.afterBlank = false;
      this.fence = FENCE.exec(line.trim())?.[1] ?? "";
      return true;
    }
    if (!this.afterBlank && !isItem && !HEADING.test(line) && !RULE.test(line) && !FENCE.test(line)) return true;
    this.close(text, begin, begin);
    return false;
  }

  /** Cuts a long paragraph that ends before `end` or goes on. */
  private cut(text: string, end: number): void {
    if (this.mode === "none" && this.position < end && this.start === this.position) {
      // A line that is not complete: only a paragraph is that long.
      const line = text.slice(this.start, this.start + 40);
      if (end - this.start <= CUT || ITEM.test(line) || NO_PARAGRAPH.test(line)) return;
      this.mode = "paragraph";
      this.lines = 0;
    }
    if (this.mode !== "paragraph") return;
    while (end - this.start > CUT) {
      const at = cutPosition(text, this.start, end);
      if (at === null) return;
      this.blocks.push({ kind: "text", text: text.slice(this.start, at), language: "", joins: this.joins });
      this.start = at;
      this.joins = true;
      this.lines = 1;
    }
  }
}

const isClosing = (line: string, fence: string): boolean =>
  /^ {0,3}(`{3,}|~{3,})\s*$/.test(line) && line.trim().startsWith(fence);

const listKind = (line: string): string => {
  const item = ITEM.exec(line);
  return item?.[1] ?? item?.[2] ?? "";
};

const opensMath = (line: string): boolean =>
  (line.startsWith("$$") && (line.length === 2 || !line.slice(2, -2).includes("$$")) && !/\$\$.+[^$]$/.test(line)) ||
  (line.startsWith("\\[") && (!line.includes("\\]") || line.endsWith("\\]")));

const interrupts = (line: string): boolean =>
  HEADING.test(line) ||
  RULE.test(line) ||
  FENCE.test(line) ||
  /^ {0,3}>/.test(line) ||
  opensMath(line.trim()) ||
  /^ {0,3}(?:[-*+]|1[.)])[ \t]+\S/.test(line);

/** The first place where a paragraph can be cut, between two words; null where more text is needed. */
function cutPosition(text: string, start: number, end: number): number | null {
  // Marks open and close in turn, so what is between two runs of one kind is left whole.
  const runs: Record<string, number> = { "`": 0, "*": 0, _: 0, $: 0, "~": 0 };
  let brackets = 0;
  const limit = Math.min(end, start + FORCED_CUT);
  let lastSpace = -1;
  for (let i = start; i < limit - 1; i++) {
    const character = text[i] as string;
    if (character in runs) {
      const isWithinWord = character === "_" && /\w/.test(text[i - 1] ?? "") && /\w/.test(text[i + 1] ?? "");
      if (text[i - 1] !== character && !isWithinWord) runs[character] = (runs[character] ?? 0) + 1;
    } else if (character === "[" || character === "(") brackets += 1;
    else if (character === "]" || character === ")") brackets -= 1;
    else if (character === " " && i - start >= CUT - 1 && /\p{L}/u.test(text[i + 1] ?? "")) {
      lastSpace = i;
      if (brackets === 0 && Object.values(runs).every((count) => count % 2 === 0)) return i + 1;
    }
  }
  if (end - start < FORCED_CUT) return null;
  if (lastSpace >= 0) return lastSpace + 1;
  const isPair = /[\uD800-\uDBFF]/.test(text[limit - 1] ?? "");
  return isPair ? limit - 1 : limit;
}
