// How the streams of a PDF file are compressed.
import { Inflate } from "fflate";
import { PdfProblem, bytesOf, latin } from "./objects";

/** A stream that needs more was made to fill the memory. */
const MOST_BYTES = 64_000_000;

/** Undoes one filter; null for those of pictures and unknown ones. */
export function decode(filter: string, bytes: Uint8Array): Uint8Array | null {
  switch (filter) {
    case "FlateDecode":
    case "Fl":
      return inflate(bytes);
    case "LZWDecode":
    case "LZW":
      return lzw(bytes);
    case "ASCIIHexDecode":
    case "AHx":
      return hex(bytes);
    case "ASCII85Decode":
    case "A85":
      return base85(bytes);
    default:
      return null;
  }
}

class Output {
  private readonly parts: Uint8Array[] = [];
  private length = 0;

  push(part: Uint8Array): void {
    this.length += part.length;
    if (this.length > MOST_BYTES) throw new PdfProblem("has a part that is too large");
    this.parts.push(part);
  }

  whole(): Uint8Array {
    const whole = new Uint8Array(this.length);
    let at = 0;
    for (const part of this.parts) {
      whole.set(part, at);
      at += part.length;
    }
    return whole;
  }
}

/** The bytes up to the first fault: many programs cut a stream off, or write more after its end. */
function inflate(bytes: Uint8Array): Uint8Array {
  const output = new Output();
  const inflater = new Inflate((chunk) => output.push(chunk.slice()));
  // The two bytes of zlib's header.
  const begin = (bytes[0] ?? 0) % 16 === 8 && (((bytes[0] ?? 0) << 8) | (bytes[1] ?? 0)) % 31 === 0 ? 2 : 0;
  try {
    for (let at = begin; at < bytes.length; at += 16_384)
      inflater.push(bytes.subarray(at, at + 16_384), at + 16_384 >= bytes.length);
  } catch (error) {
    if (error instanceof PdfProblem) throw error;
  }
  return output.whole();
}

function lzw(bytes: Uint8Array): Uint8Array {
  const output = new Output();
  const [CLEAR, END] = [256, 257];
  const singles = Array.from({ length: 258 }, (_, byte) => (byte < CLEAR ? Uint8Array.of(byte) : new Uint8Array()));
  let table = [...singles];
  let last: Uint8Array | null = null;
  let [width, buffer, bits] = [9, 0, 0];
  for (const byte of bytes) {
    buffer = ((buffer << 8) | byte) & 0xffffff;
    bits += 8;
    if (bits < width) continue;
    bits -= width;
    const code = (buffer >> bits) & ((1 << width) - 1);
    if (code === END) break;
    if (code === CLEAR) {
      [table, last, width] = [[...singles], null, 9];
      continue;
    }
    const known = table[code];
    if (!known && !last) break;
    const entry: Uint8Array = known ?? Uint8Array.of(...(last ?? []), last?.[0] ?? 0);
    output.push(entry);
    if (last && table.length < 4096) table.push(Uint8Array.of(...last, entry[0] ?? 0));
    last = entry;
    // A code is one bit longer as soon as the next entry needs it.
    if (table.length + 1 >= 1 << width && width < 12) width += 1;
  }
  return output.whole();
}

function hex(bytes: Uint8Array): Uint8Array {
  const digits =
    latin(bytes)
      .split(">")[0]
      ?.replace(/[^\da-f]/gi, "") ?? "";
  return Uint8Array.from(digits.match(/..?/g) ?? [], (pair) => parseInt(pair.padEnd(2, "0"), 16));
}

function base85(bytes: Uint8Array): Uint8Array {
  const text =
    latin(bytes)
      .replace(/^\s*<~/, "")
      .split("~")[0]
      ?.replace(/\s/g, "")
      .replace(/z/g, "!!!!!") ?? "";
  let whole = "";
  for (let at = 0; at < text.length; at += 5) {
    const group = text.slice(at, at + 5);
    let value = 0;
    for (const character of group.padEnd(5, "u")) value = value * 85 + (character.charCodeAt(0) - 33);
    const four = [24, 16, 8, 0].map((shift) => String.fromCharCode(Math.floor(value / 2 ** shift) & 0xff));
    whole += four.slice(0, group.length - 1).join("");
  }
  return bytesOf(whole);
}

/** Undoes the prediction of PNG, in which each row says how it was predicted. */
export function unpredict(bytes: Uint8Array, bytesPerPixel: number, bytesPerRow: number): Uint8Array {
  const rows = Math.floor(bytes.length / (bytesPerRow + 1));
  const result = new Uint8Array(rows * bytesPerRow);
  for (let row = 0; row < rows; row++) {
    const kind = bytes[row * (bytesPerRow + 1)] ?? 0;
    const begin = row * bytesPerRow;
    for (let i = 0; i < bytesPerRow; i++) {
      const left = i >= bytesPerPixel ? (result[begin + i - bytesPerPixel] ?? 0) : 0;
      const above = row > 0 ? (result[begin + i - bytesPerRow] ?? 0) : 0;
      const corner = row > 0 && i >= bytesPerPixel ? (result[begin + i - bytesPerRow - bytesPerPixel] ?? 0) : 0;
      const guess = [0, left, above, (left + above) >> 1, paeth(left, above, corner)][kind] ?? 0;
      result[begin + i] = (bytes[row * (bytesPerRow + 1) + 1 + i] ?? 0) + guess;
    }
  }
  return result;
}

function paeth(left: number, above: number, corner: number): number {
  const sum = left + above - corner;
  const [a, b, c] = [left, above, corner].map((value) => Math.abs(sum - value)) as [number, number, number];
  return a <= b && a <= c ? left : b <= c ? above : corner;
}
