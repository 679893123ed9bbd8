// The objects that a PDF file is made of, and their syntax.

/** A word that begins with a slash. */
export class Name {
  constructor(readonly text: string) {}
}

/** A bare word: an operator of a page, or a mark of the file. */
export class Keyword {
  constructor(readonly text: string) {}
}

/** The number of another object. */
export class Ref {
  constructor(readonly id: number) {}
}

export type Dict = Map<string, Value>;

export class Stream {
  constructor(
    readonly dict: Dict,
    /** The bytes as they are in the file. */
    readonly bytes: Uint8Array,
    /** The number of the object and its generation. */
    readonly place: readonly [number, number],
  ) {}
}

/** A string has one code unit for each of its bytes. */
export type Value = null | boolean | number | string | Name | Ref | Stream | Value[] | Dict;

/** Why a file cannot be read, as the end of a sentence that begins with its name. */
export class PdfProblem extends Error {}

const DEEPEST = 100;
const SPACES = new Set([0, 9, 10, 12, 13, 32]);
const DELIMITERS = new Set([..."()<>[]{}/%"].map((character) => character.charCodeAt(0)));
const ESCAPES: Record<string, string> = { n: "\n", r: "\r", t: "\t", b: "\b", f: "\f" };
const [OPEN, CLOSE, LESS, GREATER, SLASH, PERCENT, BACKSLASH] = [0x28, 0x29, 0x3c, 0x3e, 0x2f, 0x25, 0x5c];

/** Reads objects one after the other. */
export class Lexer {
  constructor(
    readonly bytes: Uint8Array,
    public at = 0,
  ) {}

  /** The next object or word; undefined at the end. With `refs`, `1 0 R` is a reference. */
  next(refs = false, depth = 0): Value | Keyword | undefined {
    if (depth > DEEPEST) throw new PdfProblem("is nested too deeply");
    this.space();
    const { bytes, at } = this;
    const first = bytes[at];
    if (first === undefined) return undefined;
    if (first === SLASH) return new Name(this.name());
    if (first === OPEN) return this.literal();
    if (first === LESS) return bytes[at + 1] === LESS ? this.dict(refs, depth) : this.hex();
    if (first === 0x5b) return this.array(refs, depth);
    if (first === GREATER || first === 0x5d || first === CLOSE || first === 0x7b || first === 0x7d) {
      this.at += first === GREATER && bytes[at + 1] === GREATER ? 2 : 1;
      return new Keyword(String.fromCharCode(first));
    }
    const word = this.word();
    if (/^[+-]*(?:\d+\.?\d*|\.\d+)/.test(word)) {
      const value = Number.parseFloat(word.replace(/^[+-]+(?=[+-])/, ""));
      return refs && /^\d+$/.test(word) ? this.reference(value) : value;
    }
    if (word === "true" || word === "false") return word === "true";
    return word === "null" ? null : new Keyword(word);
  }

  space(): void {
    for (;;) {
      const byte = this.bytes[this.at];
      if (byte === PERCENT) while (this.at < this.bytes.length && !this.isEndOfLine()) this.at += 1;
      else if (byte !== undefined && SPACES.has(byte)) this.at += 1;
      else return;
    }
  }

  private isEndOfLine(): boolean {
    return this.bytes[this.at] === 10 || this.bytes[this.at] === 13;
  }

  private word(): string {
    const begin = this.at;
    for (let byte = this.bytes[this.at]; byte !== undefined && !SPACES.has(byte) && !DELIMITERS.has(byte);)
      byte = this.bytes[++this.at];
    return latin(this.bytes.subarray(begin, this.at));
  }

  private name(): string {
    this.at += 1;
    return this.word().replace(/#([\da-f]{2})/gi, (_, digits: string) => String.fromCharCode(parseInt(digits, 16)));
  }

  private reference(id: number): Value {
    const { at } = this;
    const rest = /^\s+\d+\s+R(?![^\s()<>[\]{}/%])/.exec(latin(this.bytes.subarray(at, at + 24)));
    if (!rest) return id;
    this.at += rest[0].length;
    return new Ref(id);
  }

  private literal(): string {
    let text = "";
    let open = 0;
    for (; ; this.at += 1) {
      const byte = this.bytes[this.at];
      if (byte === undefined) return text;
      if (byte === BACKSLASH) {
        this.at += 1;
        text += this.escape();
        continue;
      }
      if (byte === OPEN && open++ === 0) continue;
      if (byte === CLOSE && --open === 0) break;
      text += String.fromCharCode(byte);
    }
    this.at += 1;
    return text;
  }

  /** What follows a backslash. The last byte of it is left to the caller. */
  private escape(): string {
    const digits = /^[0-7]{1,3}/.exec(latin(this.bytes.subarray(this.at, this.at + 3)));
    if (digits) {
      this.at += digits[0].length - 1;
      return String.fromCharCode(parseInt(digits[0], 8) & 0xff);
    }
    if (this.isEndOfLine()) {
      if (this.bytes[this.at] === 13 && this.bytes[this.at + 1] === 10) this.at += 1;
      return "";
    }
    const character = String.fromCharCode(this.bytes[this.at] ?? 0);
    return ESCAPES[character] ?? character;
  }

  private hex(): string {
    const begin = this.at + 1;
    const end = this.bytes.indexOf(GREATER, begin);
    this.at = end < 0 ? this.bytes.length : end + 1;
    const digits = latin(this.bytes.subarray(begin, this.at - (end < 0 ? 0 : 1))).replace(/[^\da-f]/gi, "");
    let text = "";
    for (let i = 0; i < digits.length; i += 2)
      text += String.fromCharCode(parseInt(digits.slice(i, i + 2).padEnd(2, "0"), 16));
    return text;
  }

  private array(refs: boolean, depth: number): Value[] {
    this.at += 1;
    const items: Value[] = [];
    for (;;) {
      const item = this.next(refs, depth + 1);
      if (item === undefined || (item instanceof Keyword && item.text === "]")) return items;
      if (!(item instanceof Keyword)) items.push(item);
    }
  }

  private dict(refs: boolean, depth: number): Dict {
    this.at += 2;
    const dict: Dict = new Map();
    for (;;) {
      const key = this.next(refs, depth + 1);
      if (key === undefined || (key instanceof Keyword && key.text === ">")) return dict;
      if (!(key instanceof Name)) continue;
      const value = this.next(refs, depth + 1);
      if (value instanceof Keyword) return dict;
      if (value !== undefined) dict.set(key.text, value);
    }
  }
}

/** One character for each byte. */
export function latin(bytes: Uint8Array): string {
  let text = "";
  for (let i = 0; i < bytes.length; i += 8192) text += String.fromCharCode(...bytes.subarray(i, i + 8192));
  return text;
}

export const bytesOf = (text: string): Uint8Array => Uint8Array.from(text, (character) => character.charCodeAt(0));
