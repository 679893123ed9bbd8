// The objects of a PDF file. They are found by their marks, since tables of positions are often wrong.
import { decryption, type Decrypt, type Encryption } from "./crypt";
import { decode, unpredict } from "./filters";
import { Keyword, Lexer, Name, PdfProblem, Ref, Stream, type Dict, type Value } from "./objects";

const MOST_OBJECTS = 2_000_000;
const MOST_STEPS = 20;

export class PdfFile {
  private readonly objects = new Map<number, Value>();
  private root: Value = null;
  private encrypt: Value = null;
  private id = "";
  private decrypt: Decrypt | null = null;

  constructor(private readonly bytes: Uint8Array) {
    const found = this.scanned();
    for (const [id, value] of found) this.set(id, value);
    if (this.encrypt !== null) this.decrypt = decryption(this.encryption());
    // A later object replaces an earlier one, also one that a stream contains.
    for (const [id, value] of found) {
      this.set(id, value);
      if (value instanceof Stream) this.contained(value);
    }
  }

  /** True if the strings of objects, but not those of pages, are encrypted. */
  get isEncrypted(): boolean {
    return this.decrypt !== null;
  }

  /** What an object is, where it may be a reference. */
  get(value: Value | undefined): Value {
    for (let steps = 0; value instanceof Ref && steps < MOST_STEPS; steps++) value = this.objects.get(value.id);
    return value === undefined || value instanceof Ref ? null : value;
  }

  dict(value: Value | undefined): Dict {
    const found = this.get(value);
    if (found instanceof Stream) return found.dict;
    return found instanceof Map ? found : new Map();
  }

  array(value: Value | undefined): Value[] {
    const found = this.get(value);
    return Array.isArray(found) ? found : [];
  }

  number(value: Value | undefined): number | null {
    const found = this.get(value);
    return typeof found === "number" ? found : null;
  }

  name(value: Value | undefined): string | null {
    const found = this.get(value);
    return found instanceof Name ? found.text : null;
  }

  /** The catalogue, at which the tree of pages begins. */
  catalogue(): Dict {
    const root = this.dict(this.root);
    if (root.has("Pages")) return root;
    for (const object of this.objects.values())
      if (object instanceof Map && this.name(object.get("Type")) === "Catalog") return object;
    throw new PdfProblem("has no pages");
  }

  /** The filters of a stream, in the order in which they are undone. */
  filters({ dict }: Stream): string[] {
    const filter = this.get(dict.get("Filter") ?? dict.get("F"));
    const names = Array.isArray(filter) ? filter : [filter];
    return names.map((name) => this.name(name)).filter((name) => name !== null);
  }

  /** The bytes of a stream before its filters. */
  decrypted({ bytes, place, dict }: Stream): Uint8Array {
    const isOpen = this.name(dict.get("Type")) === "XRef";
    return this.decrypt && !isOpen ? this.decrypt(bytes, ...place) : bytes;
  }

  /** The bytes of a stream; null if one of its filters is not known. */
  data(stream: Stream): Uint8Array | null {
    const given = this.get(stream.dict.get("DecodeParms") ?? stream.dict.get("DP"));
    let bytes: Uint8Array | null = this.decrypted(stream);
    for (const [index, filter] of this.filters(stream).entries()) {
      bytes = decode(filter, bytes);
      if (!bytes) return null;
      const parameters = this.dict(Array.isArray(given) ? given[index] : given);
      const count = (name: string, usual: number): number => this.number(parameters.get(name)) ?? usual;
      if (count("Predictor", 1) < 10) continue;
      const bits = count("Colors", 1) * count("BitsPerComponent", 8);
      bytes = unpredict(bytes, Math.ceil(bits / 8), Math.ceil((bits * count("Columns", 1)) / 8));
    }
    return bytes;
  }

  /** The objects by their numbers, as they follow each other in the file. */
  private scanned(): [number, Value][] {
    const { bytes } = this;
    const found: [number, Value][] = [];
    // One character for each byte, so that expressions find positions.
    const text = new TextDecoder("latin1").decode(bytes);
    if (!text.slice(0, 1024).includes("%PDF-")) throw new PdfProblem("is not a PDF file");
    const marks = /(?<!\d)(\d{1,9})\s+(\d{1,5})\s+obj(?![a-z])|\btrailer(?=\s*<<)/g;
    for (let mark = marks.exec(text); mark; mark = marks.exec(text)) {
      const lexer = new Lexer(bytes, marks.lastIndex);
      const value = lexer.next(true);
      marks.lastIndex = Math.max(lexer.at, marks.lastIndex);
      if (mark[1] === undefined) {
        if (value instanceof Map) this.trailer(value);
        continue;
      }
      if (!isValue(value)) continue;
      const id = Number(mark[1]);
      lexer.space();
      if (value instanceof Map && text.startsWith("stream", lexer.at)) {
        const data = this.streamBytes(value, lexer.at + 6, text);
        marks.lastIndex = data.byteOffset - bytes.byteOffset + data.length;
        found.push([id, new Stream(value, data, [id, Number(mark[2])])]);
        if (this.name(value.get("Type")) === "XRef") this.trailer(value);
      } else found.push([id, value]);
    }
    return found;
  }

  private set(id: number, value: Value): void {
    if (this.objects.size > MOST_OBJECTS) throw new PdfProblem("has too many objects");
    this.objects.set(id, value);
  }

  private trailer(dict: Dict): void {
    this.root = dict.get("Root") ?? this.root;
    this.encrypt = dict.get("Encrypt") ?? this.encrypt;
    const first = this.array(dict.get("ID"))[0];
    if (typeof first === "string") this.id = first;
  }

  private encryption(): Encryption {
    const dict = this.dict(this.encrypt);
    const filter = this.name(dict.get("StmF")) ?? "Identity";
    const filters = this.dict(dict.get("CF"));
    const resolved = new Map([...dict].map(([key, value]) => [key, this.get(value)] as const));
    return { dict: resolved, filter: filter === "Identity" ? null : this.dict(filters.get(filter)), id: this.id };
  }

  private streamBytes(dict: Dict, mark: number, text: string): Uint8Array {
    const begin = mark + (text.startsWith("\r\n", mark) ? 2 : /[\r\n]/.test(text[mark] ?? "") ? 1 : 0);
    const length = dict.get("Length");
    const isRight = (end: number): boolean => /^\s*endstream/.test(text.slice(end, end + 16));
    let end = typeof length === "number" && isRight(begin + length) ? begin + length : -1;
    if (end < 0) end = text.indexOf("endstream", begin);
    return this.bytes.subarray(begin, end < 0 ? text.length : end);
  }

  /** Takes the objects that a stream contains. */
  private contained(stream: Stream): void {
    if (this.name(stream.dict.get("Type")) !== "ObjStm") return;
    const data = this.data(stream);
    const first = this.number(stream.dict.get("First"));
    if (!data || first === null) return;
    const index = new Lexer(data.subarray(0, first));
    for (;;) {
      const [id, offset] = [index.next(), index.next()];
      if (typeof id !== "number" || typeof offset !== "number") return;
      const value = new Lexer(data, first + offset).next(true);
      if (isValue(value)) this.set(id, value);
    }
  }
}

const isValue = (value: ReturnType<Lexer["next"]>): value is Value =>
  value !== undefined && !(value instanceof Keyword);
