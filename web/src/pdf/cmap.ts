// Maps from the codes in the strings of a page to text.
import { Keyword, Lexer } from "./objects";

const MOST_ENTRIES = 200_000;
/** A range counts in the last two bytes. */
const MOST_STEPS = 65_535;

export class CodeMap {
  /** Texts by code and its length in bytes. */
  private readonly texts = new Map<string, string>();
  private readonly spaces: { length: number; low: number; high: number }[] = [];

  constructor(bytes: Uint8Array) {
    const lexer = new Lexer(bytes);
    let operands: unknown[] = [];
    for (let item = lexer.next(); item !== undefined; item = lexer.next()) {
      if (!(item instanceof Keyword)) {
        operands.push(item);
        continue;
      }
      if (item.text === "endcodespacerange") this.takeSpaces(operands);
      else if (item.text === "endbfchar") this.takeCharacters(operands);
      else if (item.text === "endbfrange") this.takeRanges(operands);
      operands = [];
    }
  }

  get isEmpty(): boolean {
    return this.texts.size === 0;
  }

  text(code: string): string | undefined {
    return this.texts.get(code);
  }

  /** The length of the code at the start of a string; null if the map does not tell. */
  length(text: string): number | null {
    for (const { length, low, high } of this.spaces) {
      const value = number(text.slice(0, length));
      if (text.length >= length && value >= low && value <= high) return length;
    }
    return this.spaces[0]?.length ?? null;
  }

  private takeSpaces(operands: unknown[]): void {
    for (let i = 0; i + 1 < operands.length; i += 2) {
      const [low, high] = operands.slice(i, i + 2);
      if (typeof low === "string" && typeof high === "string")
        this.spaces.push({ length: low.length, low: number(low), high: number(high) });
    }
    this.spaces.sort((a, b) => a.length - b.length);
  }

  private takeCharacters(operands: unknown[]): void {
    for (let i = 0; i + 1 < operands.length; i += 2) {
      const [code, text] = operands.slice(i, i + 2);
      if (typeof code === "string" && typeof text === "string") this.set(code, utf16(text));
    }
  }

  private takeRanges(operands: unknown[]): void {
    for (let i = 0; i + 2 < operands.length; i += 3) {
      const [low, high, to] = operands.slice(i, i + 3);
      if (typeof low !== "string" || typeof high !== "string") continue;
      const most = Math.min(number(high) - number(low), MOST_STEPS);
      for (let step = 0; step <= most; step++) {
        const text: unknown = Array.isArray(to) ? to[step] : to;
        if (typeof text !== "string") break;
        // The last unit counts up.
        const units = utf16(text);
        const last = String.fromCharCode(units.charCodeAt(units.length - 1) + step);
        this.set(codeOf(number(low) + step, low.length), Array.isArray(to) ? units : units.slice(0, -1) + last);
      }
    }
  }

  private set(code: string, text: string): void {
    if (this.texts.size < MOST_ENTRIES) this.texts.set(code, text);
  }
}

export function number(code: string): number {
  let value = 0;
  for (let i = 0; i < code.length; i++) value = value * 256 + code.charCodeAt(i);
  return value;
}

function codeOf(value: number, length: number): string {
  let code = "";
  for (let i = length - 1; i >= 0; i--) code += String.fromCharCode(Math.floor(value / 256 ** i) & 0xff);
  return code;
}

/** Text of two bytes a unit, the higher first. */
export function utf16(text: string): string {
  if (text.length === 1) return text;
  let units = "";
  for (let i = 0; i + 1 < text.length; i += 2)
    units += String.fromCharCode((text.charCodeAt(i) << 8) | text.charCodeAt(i + 1));
  return units;
}
