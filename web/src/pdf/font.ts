// The fonts of a page: what the bytes of a string say, and how wide it is.
import { CodeMap, number, utf16 } from "./cmap";
import { baseEncoding, glyphText } from "./encodings";
import type { PdfFile } from "./file";
import { bytesOf, Name, Stream, type Dict, type Value } from "./objects";

export interface Glyph {
  /** Null if nothing tells which text it is. */
  text: string | null;
  /** The advance, as a part of the font's size. */
  width: number;
  isSpace: boolean;
}

/** Encodings of the web that are those of fonts, by a part of the name of the font's encoding. */
const LEGACY: [RegExp, string][] = [
  [/^GB/, "gb18030"],
  [/RKSJ/, "shift_jis"],
  [/^(?:B5|ETen|HKscs)/, "big5"],
  [/^KSC/, "euc-kr"],
  [/^EUC/, "euc-jp"],
];

export class Font {
  private readonly toText: CodeMap | null;
  private readonly encoding: CodeMap | null;
  private readonly encodingName: string | null;
  private readonly isComposite: boolean;
  private readonly codes: (string | null)[] = [];
  private readonly widths = new Map<number, number>();
  private readonly usualWidth: number;

  constructor(file: PdfFile, dict: Dict) {
    this.isComposite = file.name(dict.get("Subtype")) === "Type0";
    this.toText = codeMap(file, dict.get("ToUnicode"));
    this.encoding = codeMap(file, dict.get("Encoding"));
    this.encodingName = file.name(dict.get("Encoding"));
    if (this.isComposite) this.usualWidth = this.readComposite(file, dict);
    else this.usualWidth = this.readSimple(file, dict);
  }

  *glyphs(text: string): Generator<Glyph> {
    for (let at = 0; at < text.length;) {
      const length = this.isComposite ? this.lengthOf(text.slice(at, at + 4)) : 1;
      const code = text.slice(at, at + length);
      at += length;
      const width = this.widths.get(number(code)) ?? this.usualWidth;
      yield { text: this.textOf(code), width, isSpace: code === " " };
    }
  }

  private textOf(code: string): string | null {
    const mapped = this.toText?.text(code);
    if (mapped !== undefined && mapped !== "\0")
      return mapped.replace(/[\ufb00-\ufb06]/g, (one) => one.normalize("NFKC"));
    if (!this.isComposite) return this.codes[code.charCodeAt(0)] ?? null;
    const name = this.encodingName ?? "";
    if (/UCS2|UTF16/.test(name)) return utf16(code);
    const legacy = LEGACY.find(([pattern]) => pattern.test(name));
    return legacy ? new TextDecoder(legacy[1]).decode(bytesOf(code)) : null;
  }

  private lengthOf(text: string): number {
    const name = this.encodingName ?? "";
    const first = text.charCodeAt(0);
    const isLegacy = !/UCS2|UTF16/.test(name) && LEGACY.some(([pattern]) => pattern.test(name));
    if (isLegacy) return first < 0x80 || (/RKSJ/.test(name) && first >= 0xa0 && first < 0xe0) ? 1 : 2;
    const map = this.encodingName ? null : (this.encoding ?? this.toText);
    return Math.min(map?.length(text) ?? 2, text.length) || 1;
  }

  private readSimple(file: PdfFile, dict: Dict): number {
    const descriptor = file.dict(dict.get("FontDescriptor"));
    const encoding = file.get(dict.get("Encoding"));
    const differences = encoding instanceof Map ? encoding : null;
    const base = encoding instanceof Name ? encoding.text : file.name(differences?.get("BaseEncoding"));
    const isSymbolic = Boolean((file.number(descriptor.get("Flags")) ?? 0) & 4);
    // The codes of a symbolic font mean what its program says, which nobody reads here.
    const isKnown = base !== null || !isSymbolic || !descriptor.has("FontFile2");
    if (isKnown) this.codes.push(...baseEncoding(base).map((text) => text || null));
    let code = 0;
    for (const item of file.array(differences?.get("Differences"))) {
      const value = file.get(item);
      if (typeof value === "number") code = value;
      else if (value instanceof Name) this.codes[code++] = glyphText(value.text);
    }
    const isType3 = file.name(dict.get("Subtype")) === "Type3";
    const scale = isType3 ? Math.abs(file.number(file.array(dict.get("FontMatrix"))[0]) ?? 0.001) : 0.001;
    const first = file.number(dict.get("FirstChar")) ?? 0;
    file.array(dict.get("Widths")).forEach((width, index) => {
      this.widths.set(first + index, (file.number(width) ?? 0) * scale);
    });
    const isMono = /Courier/.test(file.name(dict.get("BaseFont")) ?? "");
    return (file.number(descriptor.get("MissingWidth")) || (isMono ? 600 : 500)) * 0.001;
  }

  private readComposite(file: PdfFile, dict: Dict): number {
    const descendant = file.dict(file.array(dict.get("DescendantFonts"))[0]);
    const list = file.array(descendant.get("W")).map((item) => file.get(item));
    for (let i = 0; i < list.length;) {
      const [first, second, third] = list.slice(i, i + 3);
      if (typeof first !== "number") break;
      if (Array.isArray(second)) {
        second.forEach((width, index) => this.widths.set(first + index, (file.number(width) ?? 0) / 1000));
        i += 2;
      } else if (typeof second === "number" && typeof third === "number") {
        for (let code = first; code <= second && code - first < 65_536; code++) this.widths.set(code, third / 1000);
        i += 3;
      } else break;
    }
    return (file.number(descendant.get("DW")) ?? 1000) / 1000;
  }
}

function codeMap(file: PdfFile, value: Value | undefined): CodeMap | null {
  const stream = file.get(value);
  const data = stream instanceof Stream ? file.data(stream) : null;
  return data ? new CodeMap(data) : null;
}
