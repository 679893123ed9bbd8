// What a page draws: its text, and its pictures.
import { utf16 } from "./cmap";
import type { PdfFile } from "./file";
import { Font } from "./font";
import { IDENTITY, Lines, times, type Matrix } from "./layout";
import { Keyword, Lexer, Name, PdfProblem, Stream, type Dict, type Value } from "./objects";

const DEEPEST_FORM = 12;
const MOST_OPERATORS = 5_000_000;

interface State {
  matrix: Matrix;
  font: Font | null;
  size: number;
  letterSpace: number;
  wordSpace: number;
  stretch: number;
  leading: number;
  rise: number;
}

/** Marked content: a text that stands for its glyphs, if the file has one. */
interface Mark {
  actual: string | null;
}

/** Reads the text of a page. */
export class PageReader {
  readonly lines = new Lines();
  /** The pictures in the form of JPEG. */
  readonly pictures: Uint8Array[] = [];
  glyphs = 0;
  /** Glyphs that no table of the file gives a text. */
  unread = 0;
  private operators = 0;
  private state: State = {
    matrix: IDENTITY,
    font: null,
    size: 1,
    letterSpace: 0,
    wordSpace: 0,
    stretch: 1,
    leading: 0,
    rise: 0,
  };
  private stack: State[] = [];
  private marks: Mark[] = [];
  private text: Matrix = IDENTITY;
  private line: Matrix = IDENTITY;

  constructor(
    private readonly file: PdfFile,
    private readonly fonts: Map<Dict, Font>,
  ) {}

  run(content: Uint8Array, resources: Dict, depth = 0): void {
    const lexer = new Lexer(content);
    let operands: Value[] = [];
    for (let item = lexer.next(); item !== undefined; item = lexer.next()) {
      if (!(item instanceof Keyword)) {
        operands.push(item);
        continue;
      }
      if (++this.operators > MOST_OPERATORS) throw new PdfProblem("has a page that is too long");
      if (item.text === "ID") skipImage(lexer);
      else if (item.text === "Do") this.draw(operands[0], resources, depth);
      else if (item.text === "Tf") this.setFont(operands, resources);
      else if (item.text === "BDC") this.mark(operands[1], resources);
      else this.operator(item.text, operands);
      operands = [];
    }
  }

  private operator(name: string, operands: Value[]): void {
    const { state } = this;
    const at = (index: number): number => (typeof operands[index] === "number" ? (operands[index] as number) : 0);
    const matrix = (): Matrix => [at(0), at(1), at(2), at(3), at(4), at(5)];
    switch (name) {
      case "q":
        this.stack.push({ ...state });
        break;
      case "Q":
        this.state = this.stack.pop() ?? state;
        break;
      case "cm":
        state.matrix = times(matrix(), state.matrix);
        break;
      case "BT":
        this.text = this.line = IDENTITY;
        break;
      case "Tc":
        state.letterSpace = at(0);
        break;
      case "Tw":
        state.wordSpace = at(0);
        break;
      case "Tz":
        state.stretch = at(0) / 100;
        break;
      case "TL":
        state.leading = at(0);
        break;
      case "Ts":
        state.rise = at(0);
        break;
      case "Tm":
        this.text = this.line = matrix();
        break;
      case "TD":
        state.leading = -at(1);
        this.move(at(0), at(1));
        break;
      case "Td":
        this.move(at(0), at(1));
        break;
      case "T*":
        this.move(0, -state.leading);
        break;
      case "'":
      case '"':
        if (name === '"') [state.wordSpace, state.letterSpace] = [at(0), at(1)];
        this.move(0, -state.leading);
        this.show(operands.at(-1));
        break;
      case "Tj":
        this.show(operands[0]);
        break;
      case "TJ":
        for (const part of Array.isArray(operands[0]) ? operands[0] : []) {
          if (typeof part === "number") this.advance((-part / 1000) * state.size * state.stretch);
          else this.show(part);
        }
        break;
      case "BMC":
        this.marks.push({ actual: null });
        break;
      case "EMC":
        this.marks.pop();
        break;
    }
  }

  private move(x: number, y: number): void {
    this.text = this.line = times([1, 0, 0, 1, x, y], this.line);
  }

  private advance(x: number): void {
    this.text = times([1, 0, 0, 1, x, 0], this.text);
  }

  private setFont([name, size]: Value[], resources: Dict): void {
    if (!(name instanceof Name) || typeof size !== "number") return;
    const dict = this.file.dict(this.file.dict(resources.get("Font")).get(name.text));
    let font = this.fonts.get(dict);
    if (!font) this.fonts.set(dict, (font = new Font(this.file, dict)));
    [this.state.font, this.state.size] = [font, size];
  }

  private mark(properties: Value | undefined, resources: Dict): void {
    const named =
      properties instanceof Name ? this.file.dict(resources.get("Properties")).get(properties.text) : properties;
    // The page reads no strings of an encrypted file but those of its pages.
    const isHidden = this.file.isEncrypted && properties instanceof Name;
    const actual = isHidden ? null : this.file.get(this.file.dict(named).get("ActualText"));
    this.marks.push({ actual: typeof actual === "string" ? textString(actual) : null });
  }

  private show(value: Value | undefined): void {
    const { state } = this;
    if (typeof value !== "string" || !state.font) return;
    for (const glyph of state.font.glyphs(value)) {
      const from = this.place();
      const space = state.letterSpace + (glyph.isSpace ? state.wordSpace : 0);
      this.advance((glyph.width * state.size + space) * state.stretch);
      this.glyphs += 1;
      const mark = this.marks.findLast(({ actual }) => actual !== null);
      const text = mark ? mark.actual : glyph.text;
      // The text of a mark is written once, at its first glyph.
      if (mark) mark.actual = "";
      if (text === null) this.unread += 1;
      const size = Math.abs(state.size) * Math.hypot(from[2], from[3]);
      if (text?.trim()) this.lines.add(text, from, this.place(), size);
      else if (mark) this.lines.move(this.place(), size);
    }
  }

  /** Where the next glyph begins, on the page. */
  private place(): Matrix {
    const { matrix, rise } = this.state;
    return times(times([1, 0, 0, 1, 0, rise], this.text), matrix);
  }

  private draw(name: Value | undefined, resources: Dict, depth: number): void {
    const { file } = this;
    const named = name instanceof Name ? file.get(file.dict(resources.get("XObject")).get(name.text)) : null;
    if (!(named instanceof Stream)) return;
    if (file.name(named.dict.get("Subtype")) === "Image") {
      const filters = file.filters(named);
      if (filters.length === 1 && filters[0] === "DCTDecode") this.pictures.push(file.decrypted(named));
      return;
    }
    const data = depth < DEEPEST_FORM ? file.data(named) : null;
    if (!data) return;
    const { state, stack } = this;
    const values = file.array(named.dict.get("Matrix")).map((value) => file.number(value) ?? 0);
    const matrix = values.length === 6 ? (values as unknown as Matrix) : IDENTITY;
    this.stack = [];
    this.state = { ...state, matrix: times(matrix, state.matrix) };
    this.run(data, named.dict.has("Resources") ? file.dict(named.dict.get("Resources")) : resources, depth + 1);
    [this.state, this.stack] = [state, stack];
  }
}

/** Goes behind the data of a picture in the content. */
function skipImage(lexer: Lexer): void {
  const { bytes } = lexer;
  const isSpace = (byte: number | undefined): boolean => byte === undefined || byte <= 32;
  for (let at = lexer.at + 1; at < bytes.length; at++) {
    if (bytes[at] === 0x45 && bytes[at + 1] === 0x49 && isSpace(bytes[at - 1]) && isSpace(bytes[at + 2])) {
      lexer.at = at + 2;
      return;
    }
  }
  lexer.at = bytes.length;
}

/** A string that people read: UTF-16 or UTF-8 with a mark, or Latin. */
function textString(text: string): string {
  if (text.startsWith("\xfe\xff")) return utf16(text.slice(2));
  if (!text.startsWith("\xef\xbb\xbf")) return text;
  return new TextDecoder().decode(Uint8Array.from(text, (character) => character.charCodeAt(0)));
}
